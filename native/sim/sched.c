// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: the scheduler. Contexts that may sleep are tasks with stacks of their own;
 * completions, timers and RCU callbacks run on the main stack, as if in interrupts.
 *
 * DOC: What is chosen
 *
 * A step runs one of: a task that is ready, a work item, a timer, a request at a device, an
 * RCU callback, the next request of the history. In the order SIM_FIFO the oldest of them
 * goes first, in SIM_LIFO the newest. In SIM_RANDOM any of them, and tasks are also preempted
 * where memory that others may change is read or written, but never with a spin lock held: on
 * one processor that would only make others spin. Time goes on when nothing else can run, in
 * SIM_RANDOM also at other times.
 */
#include "sim.h"

#ifdef SIM_ASAN
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/asan_interface.h>
#define STACK (256U << 10)
#else
#define STACK (64U << 10)
#endif

#define STEPS_MAX 1000000U

/* So many steps take a jiffy: who polls with an eye on the clock gets an end. */
#define STEPS_OF_JIFFY 1000U

struct workqueue_struct {
	int active;
	int running;
	const char *name;
	struct list_head node;
};

struct rcu_entry { struct list_head node; u64 seq; struct rcu_head *head; void *mem; };

SIM_WORLD static struct task_struct tasks[SIM_TASKS];
SIM_WORLD struct task_struct sim_irq;
SIM_WORLD struct task_struct *sim_current;
SIM_WORLD static struct list_head ready;
SIM_WORLD static struct list_head polite;	/* they run when nothing else does */
SIM_WORLD static struct list_head works;
SIM_WORLD static struct list_head timers;
SIM_WORLD static struct list_head rcus;
SIM_WORLD static wait_queue_head_t work_done;
SIM_WORLD static wait_queue_head_t rcu_done;
SIM_WORLD static u64 clock_;
SIM_WORLD static u64 rcu_called, rcu_finished;
SIM_WORLD static u64 nsec;
SIM_WORLD unsigned long sim_jiffies;
SIM_WORLD struct workqueue_struct *sim_system_wq;
SIM_WORLD struct sim_rng sim_rng;
SIM_WORLD enum sim_order sim_order;
SIM_WORLD u64 sim_steps;
SIM_WORLD int sim_fuse;
SIM_WORLD bool sim_bugged;
SIM_WORLD char sim_bug_text[256];
SIM_WORLD struct device sim_no_device;
bool (*sim_next_ready)(void);
void (*sim_next_run)(void);
void (*sim_after_step)(void);

static u8 (*stacks)[STACK];
static void *main_sp;
static void *bug_jump[5];

/* ---- switching stacks ---- */

#ifndef __x86_64__
#error "sim_switch() is written for x86-64"
#endif
void sim_switch(void **save, void *to);
__asm__(".text\n"
	".globl sim_switch\n"
	"sim_switch:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp, (%rdi)\n"
	"mov %rsi, %rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
	"ret\n");

#ifdef SIM_ASAN
static void *main_fake;
static const void *main_bottom;
static size_t main_size;
#endif

static void to_main(bool ends)
{
	struct task_struct *me = sim_current;

#ifdef SIM_ASAN
	__sanitizer_start_switch_fiber(ends ? NULL : &me->fake_stack, main_bottom,
				       main_size);
#endif
	sim_switch(&me->sp, main_sp);
#ifdef SIM_ASAN
	__sanitizer_finish_switch_fiber(me->fake_stack, &main_bottom, &main_size);
#endif
}

/* In the other orders a task is interrupted only if it seems to wait for others in a loop. */
static void new_fuse(void)
{
	sim_fuse = sim_order == SIM_RANDOM ? 1 + (int)sim_below(&sim_rng, 60) : 3000;
}

static void run_task(struct task_struct *t)
{
	sim_current = t;
	t->ready = false;
	new_fuse();
#ifdef SIM_ASAN
	__sanitizer_start_switch_fiber(&main_fake, stacks[t->nr], STACK);
#endif
	sim_switch(&main_sp, t->sp);
#ifdef SIM_ASAN
	__sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
	sim_current = &sim_irq;
	sim_fuse = 0;
}

static void task_entry(void)
{
#ifdef SIM_ASAN
	__sanitizer_finish_switch_fiber(NULL, &main_bottom, &main_size);
#endif
	sim_current->fn(sim_current->arg);
	if (sim_current->locks || sim_current->rcu)
		SIM_BUG("a task ends with a lock held");
	sim_current->used = false;
	to_main(true);
}

struct task_struct *sim_task_start(void (*fn)(void *), void *arg,
				   const char *what)
{
	struct task_struct *t;
	void **sp;
	int i;

	for (i = 0; i < SIM_TASKS && tasks[i].used; i++)
		;
	if (i == SIM_TASKS)
		SIM_BUG("too many tasks");
	if (!stacks)
		stacks = aligned_alloc(4096, sizeof(*stacks) * SIM_TASKS);
	t = &tasks[i];
	memset(t, 0, sizeof(*t));
	t->nr = i;
	t->used = true;
	t->fn = fn;
	t->arg = arg;
	t->what = what;
	t->flags = PF_KTHREAD;
	INIT_LIST_HEAD(&t->node);
	INIT_LIST_HEAD(&t->timer.node);
#ifdef SIM_ASAN
	__asan_unpoison_memory_region(stacks[i], STACK);
#endif
	sp = (void **)(stacks[i] + STACK);
	*--sp = NULL;
	*--sp = (void *)task_entry;
	sp -= 6;
	memset(sp, 0, 6 * sizeof(*sp));
	t->sp = sp;
	t->ready = true;
	list_add_tail(&t->node, &ready);
	return t;
}

bool sim_on_main(void)
{
	return sim_current == &sim_irq;
}

void sim_bug(const char *file, int line, const char *what)
{
	const char *name = strrchr(file, '/');

	if (!sim_bugged)
		snprintf(sim_bug_text, sizeof(sim_bug_text), "%s:%d: %s",
			 name ? name + 1 : file, line, what);
	sim_bugged = true;
	sim_fuse = 0;
	if (!sim_on_main())
		to_main(true);
	__builtin_longjmp(bug_jump, 1);
}

void sim_warn(const char *file, int line, const char *what)
{
	char text[200];

	snprintf(text, sizeof(text), "WARN_ON(%s)", what);
	sim_bug(file, line, text);
}

void sim_may_sleep(const char *what)
{
	if (sim_on_main())
		SIM_BUG("sleeps in an interrupt");
	if (sim_current->locks)
		SIM_BUG("sleeps with a spin lock held");
	if (sim_current->rcu)
		SIM_BUG("sleeps under RCU");
}

static void make_ready(struct task_struct *t)
{
	if (t->ready || t == sim_current)
		return;
	t->ready = true;
	list_add_tail(&t->node, &ready);
}

/* Another task runs. This one is ready all the time. */
void sim_preempt(void)
{
	struct task_struct *me = sim_current;

	if (me == &sim_irq || me->locks) {
		sim_fuse = 1 + sim_below(&sim_rng, 8);
		return;
	}
	me->ready = true;
	list_add_tail(&me->node, sim_order == SIM_RANDOM ? &ready : &polite);
	to_main(false);
}

/* Sleep, unless somebody has woken us since sim_wait_begin(). */
void sim_sleep(void)
{
	if (!sim_current->asleep)
		return;
	to_main(false);
}

void sim_wake(struct task_struct *t)
{
	t->asleep = false;
	make_ready(t);
}

/* ---- waiting ---- */

void sim_wait_begin(wait_queue_head_t *w, struct sim_waiter *me)
{
	if (!w->made)
		SIM_BUG("a wait queue was not initialised");
	me->task = sim_current;
	list_add_tail(&me->node, &w->list);
	sim_current->asleep = true;
}

void sim_wait_end(struct sim_waiter *me)
{
	list_del_init(&me->node);
	me->task->asleep = false;
}

void wake_up_all(wait_queue_head_t *w)
{
	struct sim_waiter *m;

	sim_point();
	if (!w->made)
		SIM_BUG("a wait queue was not initialised");
	list_for_each_entry(m, &w->list, node)
		sim_wake(m->task);
}

static void add_timer(struct sim_timer *t, u64 at)
{
	struct sim_timer *o;

	t->at = at;
	t->seq = ++clock_;
	list_for_each_entry_reverse(o, &timers, node) {
		if (o->at <= at)
			break;
	}
	list_add(&t->node, &o->node);
}

static void task_timer(struct sim_timer *t)
{
	struct task_struct *task = container_of(t, struct task_struct, timer);

	task->timed_out = true;
	sim_wake(task);
}

void sim_timeout_begin(long timeout)
{
	sim_may_sleep("timeout");
	sim_current->timed_out = false;
	sim_current->timer.fn = task_timer;
	if (timeout < MAX_SCHEDULE_TIMEOUT / 2)
		add_timer(&sim_current->timer, sim_jiffies + timeout);
}

long sim_timeout_end(void)
{
	struct sim_timer *t = &sim_current->timer;
	long left = MAX_SCHEDULE_TIMEOUT;

	if (t->node.next != &t->node) {
		left = t->at - sim_jiffies;
		list_del_init(&t->node);
	} else if (sim_current->timed_out) {
		left = 0;
	}
	sim_current->timed_out = false;
	return left;
}

long schedule_timeout_uninterruptible(long timeout)
{
	sim_timeout_begin(timeout);
	while (!sim_current->timed_out) {
		sim_current->asleep = true;
		sim_sleep();
	}
	return sim_timeout_end();
}

u64 sim_ns(void)
{
	return sim_jiffies * (NSEC_PER_SEC / HZ) + ++nsec % 4000000;
}

void complete(struct completion *c)
{
	c->done++;
	wake_up_all(&c->wait);
}

void complete_all(struct completion *c)
{
	c->done = U32_MAX / 2;
	wake_up_all(&c->wait);
}

void wait_for_completion(struct completion *c)
{
	sim_may_sleep("wait_for_completion");
	wait_event(c->wait, c->done);
	c->done--;
}

unsigned long wait_for_completion_timeout(struct completion *c, unsigned long t)
{
	long left = wait_event_timeout(c->wait, c->done, (long)t);

	if (left)
		c->done--;
	return left;
}

void mutex_lock(struct mutex *m)
{
	sim_may_sleep("mutex_lock");
	sim_point();
	if (m->owner == sim_current)
		SIM_BUG("a mutex is taken twice");
	wait_event(m->wait, !m->owner);
	m->owner = sim_current;
}

bool mutex_trylock(struct mutex *m)
{
	sim_point();
	if (m->owner)
		return false;
	m->owner = sim_current;
	return true;
}

void mutex_unlock(struct mutex *m)
{
	if (m->owner != sim_current)
		SIM_BUG("a mutex is released that is not held");
	m->owner = NULL;
	wake_up_all(&m->wait);
	sim_point();
}

void down(struct semaphore *s)
{
	wait_event(s->wait, s->count > 0);
	s->count--;
}

int down_timeout(struct semaphore *s, long t)
{
	if (!wait_event_timeout(s->wait, s->count > 0, t))
		return -ETIME;
	s->count--;
	return 0;
}

int down_trylock(struct semaphore *s)
{
	if (s->count <= 0)
		return 1;
	s->count--;
	return 0;
}

void up(struct semaphore *s)
{
	s->count++;
	wake_up_all(&s->wait);
}

/* ---- work items ---- */

struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags,
					 int active, ...)
{
	struct workqueue_struct *wq = sim_zalloc(sizeof(*wq), GFP_KERNEL);

	wq->active = active ?: 256;
	wq->name = fmt;
	return wq;
}

void sim_init_work(struct work_struct *w, work_func_t f)
{
	memset(w, 0, sizeof(*w));
	w->func = f;
	INIT_LIST_HEAD(&w->node);
}

static void delayed_timer(struct sim_timer *t);

void sim_init_delayed_work(struct delayed_work *w, work_func_t f)
{
	sim_init_work(&w->work, f);
	w->armed = false;
	INIT_LIST_HEAD(&w->timer.node);
	w->timer.fn = delayed_timer;
}

static void enqueue(struct workqueue_struct *wq, struct work_struct *w)
{
	if (!w->func)
		SIM_BUG("a work item was not initialised");
	w->pending = true;
	w->wq = wq;
	w->seq = ++clock_;
	list_add_tail(&w->node, &works);
}

bool queue_work(struct workqueue_struct *wq, struct work_struct *w)
{
	sim_point();
	if (w->pending)
		return false;
	enqueue(wq, w);
	return true;
}

static void delayed_timer(struct sim_timer *t)
{
	struct delayed_work *w = container_of(t, struct delayed_work, timer);

	w->armed = false;
	enqueue(w->wq, &w->work);
}

static void hrtimer_fire(struct sim_timer *t)
{
	struct hrtimer *h = container_of(t, struct hrtimer, timer);

	h->armed = false;
	h->function(h);
}

void hrtimer_init(struct hrtimer *h, int clock, int mode)
{
	INIT_LIST_HEAD(&h->timer.node);
	h->timer.fn = hrtimer_fire;
	h->armed = false;
}

void hrtimer_start(struct hrtimer *h, ktime_t ns, int mode)
{
	hrtimer_cancel(h);
	h->armed = true;
	add_timer(&h->timer, sim_jiffies + ns / (NSEC_PER_SEC / HZ) + 1);
}

int hrtimer_cancel(struct hrtimer *h)
{
	int was = h->armed;

	sim_point();
	if (h->armed)
		list_del_init(&h->timer.node);
	h->armed = false;
	return was;
}

static void arm(struct workqueue_struct *wq, struct delayed_work *w,
		unsigned long delay)
{
	w->wq = wq;
	if (!delay) {
		enqueue(wq, &w->work);
		return;
	}
	if (!w->work.func)
		SIM_BUG("a work item was not initialised");
	w->work.pending = true;
	w->armed = true;
	add_timer(&w->timer, sim_jiffies + delay);
}

bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *w,
			unsigned long delay)
{
	sim_point();
	if (w->work.pending)
		return false;
	arm(wq, w, delay);
	return true;
}

/* Take a work item off the queue, or stop its timer. */
static bool unqueue(struct work_struct *w, struct delayed_work *d)
{
	if (!w->pending)
		return false;
	if (d && d->armed)
		list_del_init(&d->timer.node);
	else
		list_del_init(&w->node);
	if (d)
		d->armed = false;
	w->pending = false;
	return true;
}

bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *w,
		      unsigned long delay)
{
	bool was;

	sim_point();
	was = unqueue(&w->work, w);
	arm(wq, w, delay);
	return was;
}

static struct task_struct *runner(const struct work_struct *w)
{
	int i;

	for (i = 0; i < SIM_TASKS; i++) {
		if (tasks[i].used && tasks[i].work == w)
			return &tasks[i];
	}
	return NULL;
}

static bool flushed(struct work_struct *w, u64 seq)
{
	struct task_struct *t;
	struct work_struct *o;

	list_for_each_entry(o, &works, node) {
		if (o == w && o->seq <= seq)
			return false;
	}
	t = runner(w);
	return !t || t->work_seq > seq;
}

bool flush_work(struct work_struct *w)
{
	u64 seq;

	sim_may_sleep("flush_work");
	sim_point();
	if (sim_current->work == w)
		SIM_BUG("a work item waits for itself");
	seq = clock_;
	if (flushed(w, seq))
		return false;
	wait_event(work_done, flushed(w, seq));
	return true;
}

bool flush_delayed_work(struct delayed_work *w)
{
	sim_may_sleep("flush_delayed_work");
	if (w->armed) {
		unqueue(&w->work, w);
		enqueue(w->wq, &w->work);
	}
	return flush_work(&w->work);
}

static bool wq_flushed(struct workqueue_struct *wq, u64 seq)
{
	struct work_struct *o;
	int i;

	list_for_each_entry(o, &works, node) {
		if (o->wq == wq && o->seq <= seq)
			return false;
	}
	for (i = 0; i < SIM_TASKS; i++) {
		if (tasks[i].used && tasks[i].wq == wq && tasks[i].work_seq <= seq)
			return false;
	}
	return true;
}

void flush_workqueue(struct workqueue_struct *wq)
{
	u64 seq = clock_;

	sim_may_sleep("flush_workqueue");
	if (sim_current->wq == wq)
		SIM_BUG("a workqueue waits for itself");
	wait_event(work_done, wq_flushed(wq, seq));
}

void destroy_workqueue(struct workqueue_struct *wq)
{
	while (!wq_flushed(wq, U64_MAX))
		flush_workqueue(wq);
	sim_free(wq);
}

bool cancel_work_sync(struct work_struct *w)
{
	bool was;

	sim_may_sleep("cancel_work_sync");
	was = unqueue(w, NULL);
	if (sim_current->work == w)
		SIM_BUG("a work item waits for itself");
	wait_event(work_done, !runner(w));
	return was;
}

bool cancel_delayed_work(struct delayed_work *w)
{
	sim_point();
	return unqueue(&w->work, w);
}

bool cancel_delayed_work_sync(struct delayed_work *w)
{
	bool was;

	sim_may_sleep("cancel_delayed_work_sync");
	if (sim_current->work == &w->work)
		SIM_BUG("a work item waits for itself");
	was = unqueue(&w->work, w);
	/* It may queue itself again until it ends. */
	while (runner(&w->work)) {
		wait_event(work_done, !runner(&w->work));
		was |= unqueue(&w->work, w);
	}
	return was;
}

unsigned int work_busy(struct work_struct *w)
{
	sim_point();
	return (w->pending ? 1 : 0) | (runner(w) ? 2 : 0);
}

static void work_entry(void *arg)
{
	struct workqueue_struct *wq = sim_current->wq;
	struct work_struct *w = arg;

	w->func(w);
	/* Both may have been freed. */
	sim_current->work = NULL;
	sim_current->wq = NULL;
	if (wq->active < 256)
		wq->running--;
	wake_up_all(&work_done);
}

static void run_work(struct work_struct *w)
{
	struct task_struct *t;

	sim_watch(w);
	list_del_init(&w->node);
	w->pending = false;
	if (sim_verbose && sim_steps > STEPS_MAX - 40)
		fprintf(stderr, "[%lu]     work %p runs\n", sim_jiffies, (void *)w->func);
	t = sim_task_start(work_entry, w, "work");
	list_del_init(&t->node);
	t->work = w;
	t->wq = w->wq;
	t->work_seq = w->seq;
	if (w->wq->active < 256)
		w->wq->running++;
	run_task(t);
}

static bool work_may_run(const struct work_struct *w)
{
	if (w->wq->active < 256 && w->wq->running >= w->wq->active)
		return false;
	return !runner(w);
}

/* ---- RCU ---- */

void rcu_read_lock(void)
{
	struct task_struct *me = sim_current;

	if (!me->rcu++)
		me->rcu_seq = ++clock_;
	sim_point();
}

void rcu_read_unlock(void)
{
	struct task_struct *me = sim_current;

	sim_point();
	if (!me->rcu)
		SIM_BUG("RCU is released that is not held");
	if (!--me->rcu && rcu_done.list.next != &rcu_done.list)
		wake_up_all(&rcu_done);
}

/* Have all readers that were there at @seq left? */
static bool rcu_passed(u64 seq)
{
	int i;

	for (i = 0; i < SIM_TASKS; i++) {
		if (tasks[i].used && tasks[i].rcu && tasks[i].rcu_seq <= seq)
			return false;
	}
	return true;
}

static void rcu_add(struct rcu_head *head, void *mem)
{
	struct rcu_entry *e = sim_alloc(sizeof(*e), GFP_KERNEL);

	e->seq = ++clock_;
	e->head = head;
	e->mem = mem;
	list_add_tail(&e->node, &rcus);
	rcu_called++;
}

void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	sim_point();
	head->func = func;
	rcu_add(head, NULL);
}

void sim_rcu_walk(bool locked)
{
	if (!locked && !sim_current->rcu)
		SIM_BUG("a list is read without RCU or a lock");
}

void sim_free_rcu(void *p)
{
	sim_point();
	if (p)
		rcu_add(NULL, p);
}

void synchronize_rcu(void)
{
	u64 seq = ++clock_;

	sim_may_sleep("synchronize_rcu");
	wait_event(rcu_done, rcu_passed(seq));
}

void rcu_barrier(void)
{
	u64 n = rcu_called;

	sim_may_sleep("rcu_barrier");
	wait_event(rcu_done, rcu_finished >= n);
}

static void run_rcu(struct rcu_entry *e)
{
	struct rcu_head *head = e->head;
	void *mem = e->mem;

	list_del(&e->node);
	sim_free(e);
	if (head)
		head->func(head);
	else
		sim_free(mem);
	rcu_finished++;
	wake_up_all(&rcu_done);
}

/* ---- the choice ---- */

struct choices {
	unsigned int ready, works, timers, disks, rcu, next;
	u64 disk_at;
};

static unsigned int count(struct choices *c)
{
	struct work_struct *w;
	struct sim_timer *t;
	struct list_head *n;

	memset(c, 0, sizeof(*c));
	for (n = ready.next; n != &ready; n = n->next)
		c->ready++;
	list_for_each_entry(w, &works, node)
		c->works += work_may_run(w);
	list_for_each_entry(t, &timers, node) {
		if (t->at > sim_jiffies)
			break;
		c->timers++;
	}
	c->disk_at = U64_MAX;
	c->disks = sim_disk_ready(&c->disk_at);
	c->rcu = rcus.next != &rcus &&
		 rcu_passed(list_first_entry(&rcus, struct rcu_entry, node)->seq);
	c->next = sim_next_ready && sim_next_ready();
	return c->ready + c->works + c->timers + c->disks + c->rcu + c->next;
}

static void run_nth_work(unsigned int n)
{
	struct work_struct *w;

	list_for_each_entry(w, &works, node) {
		if (work_may_run(w) && !n--) {
			run_work(w);
			return;
		}
	}
}

static void run_nth_ready(unsigned int n)
{
	struct list_head *l = ready.next;
	struct task_struct *t;

	while (n--)
		l = l->next;
	t = list_entry(l, struct task_struct, node);
	list_del_init(&t->node);
	run_task(t);
}

static void run_nth_timer(unsigned int n)
{
	struct list_head *l = timers.next;
	struct sim_timer *t;

	while (n--)
		l = l->next;
	t = list_entry(l, struct sim_timer, node);
	list_del_init(&t->node);
	t->fn(t);
}

static void run_first_rcu(void)
{
	run_rcu(list_first_entry(&rcus, struct rcu_entry, node));
}

static void run_fifo(const struct choices *c)
{
	if (c->ready)
		run_nth_ready(0);
	else if (c->timers)
		run_nth_timer(0);
	else if (c->works)
		run_nth_work(0);
	else if (c->disks)
		sim_disk_run(0);
	else if (c->rcu)
		run_first_rcu();
	else
		sim_next_run();
}

static void run_lifo(const struct choices *c)
{
	if (c->next)
		sim_next_run();
	else if (c->ready)
		run_nth_ready(c->ready - 1);
	else if (c->disks)
		sim_disk_run(c->disks - 1);
	else if (c->works)
		run_nth_work(c->works - 1);
	else if (c->timers)
		run_nth_timer(c->timers - 1);
	else
		run_first_rcu();
}

static void run_random(const struct choices *c, unsigned int n)
{
	unsigned int k = sim_below(&sim_rng, n);

	if (k < c->ready)
		run_nth_ready(k);
	else if ((k -= c->ready) < c->works)
		run_nth_work(k);
	else if ((k -= c->works) < c->timers)
		run_nth_timer(k);
	else if ((k -= c->timers) < c->disks)
		sim_disk_run(k);
	else if ((k -= c->disks) < c->rcu)
		run_first_rcu();
	else
		sim_next_run();
}

/* Let time go on. Return: false if nothing happens until @until. */
static bool advance(const struct choices *c, u64 until)
{
	u64 at = c->disk_at;

	if (timers.next != &timers)
		at = min(at, list_first_entry(&timers, struct sim_timer, node)->at);
	if (at > until)
		return false;
	sim_jiffies = max(at, (u64)sim_jiffies);
	return true;
}

static bool step(u64 until)
{
	struct choices c;
	unsigned int n = count(&c);

	if (!n && polite.next != &polite) {
		struct task_struct *t = list_first_entry(&polite, struct task_struct, node);

		list_del_init(&t->node);
		sim_jiffies++;
		run_task(t);
		return true;
	}
	if (!n || (sim_order == SIM_RANDOM && sim_chance(&sim_rng, 400))) {
		bool went = advance(&c, until);

		if (!n)
			return went;
		return true;
	}
	/* Nothing waits for ever: the newest first would starve the oldest. */
	if (sim_order == SIM_FIFO)
		run_fifo(&c);
	else if (sim_order == SIM_LIFO && sim_steps % 61)
		run_lifo(&c);
	else
		run_random(&c, n);
	return true;
}

int sim_run(bool (*done)(void), u64 until)
{
	if (__builtin_setjmp(bug_jump)) {
		sim_current = &sim_irq;
		return -1;
	}
	while (!done()) {
		if (!step(until))
			return 1;
		if (sim_bugged)
			return -1;
		if (sim_irq.locks || sim_irq.rcu)
			SIM_BUG("an interrupt ends with a lock held");
		if (!(++sim_steps % STEPS_OF_JIFFY))
			sim_jiffies++;
		if (sim_steps > STEPS_MAX)
			SIM_BUG("the module does not come to rest");
		if (sim_after_step)
			sim_after_step();
	}
	return 0;
}

void sim_sched_init(enum sim_order order, u64 seed)
{
	if (!sim_current) {
		INIT_LIST_HEAD(&ready);
		INIT_LIST_HEAD(&polite);
		INIT_LIST_HEAD(&works);
		INIT_LIST_HEAD(&timers);
		INIT_LIST_HEAD(&rcus);
		init_waitqueue_head(&work_done);
		init_waitqueue_head(&rcu_done);
		sim_jiffies = 100000;
		sim_current = &sim_irq;
		sim_irq.what = "interrupt";
		sim_system_wq = alloc_workqueue("system", 0, 0);
	}
	sim_order = order;
	sim_rng = sim_seeded(seed);
	sim_steps = 0;
}

void sim_dump(FILE *f)
{
	struct work_struct *w;
	struct sim_timer *t;
	int i;

	for (i = 0; i < SIM_TASKS; i++) {
		if (tasks[i].used)
			fprintf(f, "  task %d %s: %s%s work %p rcu %d\n", i,
				tasks[i].what, tasks[i].ready ? "ready" : "",
				tasks[i].asleep ? "asleep" : "",
				tasks[i].work ? (void *)tasks[i].work->func : NULL,
				tasks[i].rcu);
	}
	list_for_each_entry(w, &works, node)
		fprintf(f, "  work %p\n", (void *)w->func);
	list_for_each_entry(t, &timers, node)
		fprintf(f, "  timer at %llu\n", t->at - sim_jiffies);
}
