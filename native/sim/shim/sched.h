/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: tasks, locks, waiting, time, work items and RCU. See ../sched.c.
 */
#ifndef SIM_SCHED_H
#define SIM_SCHED_H

#include "base.h"

/* ---- tasks ---- */

struct cgroup { u64 id; struct cgroup *parent; };

#define PF_KTHREAD 1U
#define SIM_TASKS 96

struct sim_timer {
	struct list_head node;
	u64 at;
	u64 seq;
	void (*fn)(struct sim_timer *t);
};

struct work_struct;
struct workqueue_struct;

struct task_struct {
	unsigned int flags;
	struct cgroup *cgroup;
	int nr;
	bool used;
	bool ready;
	bool asleep;
	bool timed_out;
	int locks;
	int rcu;
	u64 rcu_seq;
	void *sp;
	void (*fn)(void *arg);
	void *arg;
	struct list_head node;
	struct sim_timer timer;
	struct work_struct *work;
	struct workqueue_struct *wq;
	u64 work_seq;
	const char *what;
	void *fake_stack;
};

extern struct task_struct *sim_current;
extern struct task_struct sim_irq;
#define current sim_current

struct task_struct *sim_task_start(void (*fn)(void *), void *arg,
				   const char *what);
void sim_sleep(void);
void sim_wake(struct task_struct *t);
void sim_may_sleep(const char *what);
#define might_sleep() sim_may_sleep("might_sleep")

static inline struct cgroup *task_dfl_cgroup(struct task_struct *t)
{
	return t->cgroup;
}
static inline struct cgroup *cgroup_parent(struct cgroup *c) { return c->parent; }
static inline u64 cgroup_id(const struct cgroup *c) { return c->id; }

/* ---- time ---- */

#define HZ 250
extern unsigned long sim_jiffies;
#define jiffies sim_jiffies
#define MAX_SCHEDULE_TIMEOUT LONG_MAX
#define time_after(a, b) ((long)((b) - (a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) ((long)((a) - (b)) >= 0)
#define time_before_eq(a, b) time_after_eq(b, a)
#define msecs_to_jiffies(ms) (((unsigned long)(ms) * HZ + 999) / 1000)
#define jiffies_to_msecs(j) ((unsigned int)((j) * 1000 / HZ))
#define jiffies64_to_nsecs(j) ((u64)(j) * (1000000000ULL / HZ))
#define usecs_to_jiffies(us) msecs_to_jiffies(((us) + 999) / 1000)
#define nsecs_to_jiffies(ns) ((unsigned long)((ns) / (1000000000UL / HZ)))
u64 sim_ns(void);
#define ktime_get_ns() sim_ns()
#define ktime_get() ((ktime_t)sim_ns())
#define ktime_ms_delta(a, b) (((a) - (b)) / NSEC_PER_MSEC)
#define ktime_us_delta(a, b) (((a) - (b)) / NSEC_PER_USEC)
#define ktime_to_ns(t) (t)
#define ktime_sub(a, b) ((a) - (b))
#define ktime_add_ns(a, b) ((a) + (s64)(b))
long schedule_timeout_uninterruptible(long timeout);
#define msleep(ms) schedule_timeout_uninterruptible(msecs_to_jiffies(ms))
#define usleep_range(lo, hi) schedule_timeout_uninterruptible(1)

/* ---- spin locks: they are never contended, since no holder is preempted ---- */

typedef struct sim_spinlock spinlock_t;
#define DEFINE_SPINLOCK(l) spinlock_t l
#define SINGLE_DEPTH_NESTING 1
static inline void spin_lock_init(spinlock_t *l) { l->held = 0; }
static inline void spin_lock(spinlock_t *l)
{
	if (!sim_current->locks)
		sim_point();
	if (l->held)
		SIM_BUG("a spin lock is taken twice");
	l->held = 1;
	sim_current->locks++;
}
static inline bool spin_trylock(spinlock_t *l)
{
	if (l->held)
		return false;
	spin_lock(l);
	return true;
}
static inline void spin_unlock(spinlock_t *l)
{
	if (!l->held || !sim_current->locks)
		SIM_BUG("a spin lock that is not held is released");
	l->held = 0;
	if (!--sim_current->locks)
		sim_point();
}
#define spin_is_locked(l) ((l)->held)
#define spin_lock_nested(l, n) spin_lock(l)
#define spin_lock_irq(l) spin_lock(l)
#define spin_unlock_irq(l) spin_unlock(l)
#define spin_lock_bh(l) spin_lock(l)
#define spin_unlock_bh(l) spin_unlock(l)
#define spin_lock_irqsave(l, f) ((f) = 0, spin_lock(l))
#define spin_lock_irqsave_nested(l, f, n) ((f) = 0, spin_lock(l))
#define spin_unlock_irqrestore(l, f) ((void)(f), spin_unlock(l))
#define local_irq_save(f) ((f) = 0)
#define local_irq_restore(f) ((void)(f))
#define in_interrupt() (sim_current == &sim_irq)

/* ---- waiting ---- */

typedef struct wait_queue_head {
	struct list_head list;
	bool made;
} wait_queue_head_t;

struct sim_waiter { struct list_head node; struct task_struct *task; };

#define DECLARE_WAIT_QUEUE_HEAD(w) wait_queue_head_t w = { \
	{ &(w).list, &(w).list }, true }
static inline void init_waitqueue_head(wait_queue_head_t *w)
{
	INIT_LIST_HEAD(&w->list);
	w->made = true;
}
void sim_wait_begin(wait_queue_head_t *w, struct sim_waiter *me);
void sim_wait_end(struct sim_waiter *me);
void wake_up_all(wait_queue_head_t *w);
#define wake_up(w) wake_up_all(w)
#define wake_up_interruptible wake_up_all
static inline bool wq_has_sleeper(wait_queue_head_t *w)
{
	sim_point();
	return w->list.next != &w->list;
}
#define waitqueue_active wq_has_sleeper

/* Sleep until @c, or until the timer of the task has fired. */
#define sim_wait(w, c) ({							\
	struct sim_waiter _me;							\
	bool _is = false;							\
										\
	sim_may_sleep("wait_event");						\
	for (;;) {								\
		sim_wait_begin(&(w), &_me);					\
		_is = (c);							\
		if (_is || sim_current->timed_out)				\
			break;							\
		sim_sleep();							\
		sim_wait_end(&_me);						\
	}									\
	sim_wait_end(&_me);							\
	_is;									\
})
void sim_timeout_begin(long timeout);
long sim_timeout_end(void);
#define wait_event(w, c) do {							\
		sim_may_sleep("wait_event");					\
		if (c)								\
			break;							\
		sim_current->timed_out = false;					\
		sim_wait(w, c);							\
	} while (0)
#define io_wait_event wait_event
#define wait_event_timeout(w, c, t) ({						\
	long _left;								\
	bool _now;								\
										\
	sim_timeout_begin(t);							\
	_now = sim_wait(w, c);							\
	_left = sim_timeout_end();						\
	_now ? max(_left, 1L) : 0L;						\
})

struct completion { unsigned int done; wait_queue_head_t wait; };
static inline void init_completion(struct completion *c)
{
	c->done = 0;
	init_waitqueue_head(&c->wait);
}
#define reinit_completion(c) ((c)->done = 0)
#define DECLARE_COMPLETION_ONSTACK(n) \
	struct completion n = { 0, { { &n.wait.list, &n.wait.list }, true } }
void complete(struct completion *c);
void complete_all(struct completion *c);
void wait_for_completion(struct completion *c);
#define wait_for_completion_io wait_for_completion
unsigned long wait_for_completion_timeout(struct completion *c, unsigned long t);
#define completion_done(c) (!!(c)->done)

struct mutex { struct task_struct *owner; wait_queue_head_t wait; };
#define DEFINE_MUTEX(m) struct mutex m = { NULL, { { &(m).wait.list, \
						     &(m).wait.list }, true } }
static inline void mutex_init(struct mutex *m)
{
	m->owner = NULL;
	init_waitqueue_head(&m->wait);
}
#define mutex_destroy(m) ((void)(m))
void mutex_lock(struct mutex *m);
bool mutex_trylock(struct mutex *m);
void mutex_unlock(struct mutex *m);
#define mutex_lock_nested(m, n) mutex_lock(m)
#define mutex_is_locked(m) (!!(m)->owner)
static inline bool sim_mutex_held(const struct mutex *m)
{
	return m->owner == sim_current;
}
static inline bool sim_spin_held(const spinlock_t *l) { return l->held; }
#define sim_assert_held(l) do {							\
		if (!_Generic((l), struct mutex *: sim_mutex_held,		\
			      const struct mutex *: sim_mutex_held,		\
			      default: sim_spin_held)((void *)(l)))		\
			SIM_BUG("a lock that should be held is not");		\
	} while (0)

struct semaphore { int count; wait_queue_head_t wait; };
static inline void sema_init(struct semaphore *s, int n)
{
	s->count = n;
	init_waitqueue_head(&s->wait);
}
void down(struct semaphore *s);
int down_timeout(struct semaphore *s, long t);
int down_trylock(struct semaphore *s);
void up(struct semaphore *s);

/* ---- work items ---- */

typedef void (*work_func_t)(struct work_struct *work);
struct work_struct {
	work_func_t func;
	struct workqueue_struct *wq;
	struct list_head node;
	bool pending;
	u64 seq;
};
struct delayed_work {
	struct work_struct work;
	struct sim_timer timer;
	bool armed;
	struct workqueue_struct *wq;
};
#define WQ_MEM_RECLAIM 1U
#define WQ_UNBOUND 2U
#define WQ_HIGHPRI 4U
#define WQ_SYSFS 8U
#define WQ_FREEZABLE 16U
#define WQ_CPU_INTENSIVE 32U
extern struct workqueue_struct *sim_system_wq;
#define system_wq sim_system_wq
#define system_long_wq sim_system_wq
#define system_unbound_wq sim_system_wq
struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags,
					 int active, ...);
#define alloc_ordered_workqueue(fmt, flags, ...) alloc_workqueue(fmt, flags, 1, ##__VA_ARGS__)
void destroy_workqueue(struct workqueue_struct *wq);
void sim_init_work(struct work_struct *w, work_func_t f);
enum hrtimer_restart { HRTIMER_NORESTART, HRTIMER_RESTART };
enum hrtimer_mode { HRTIMER_MODE_REL_SOFT };
#define CLOCK_MONOTONIC 1
typedef int clockid_t;
#define ns_to_ktime(ns) ((ktime_t)(ns))

struct hrtimer {
	struct sim_timer timer;
	bool armed;
	enum hrtimer_restart (*function)(struct hrtimer *h);
};

void hrtimer_init(struct hrtimer *h, int clock, int mode);
void hrtimer_start(struct hrtimer *h, ktime_t ns, int mode);
int hrtimer_cancel(struct hrtimer *h);

void sim_init_delayed_work(struct delayed_work *w, work_func_t f);
#define INIT_WORK(w, f) sim_init_work(w, f)
#define INIT_DELAYED_WORK(w, f) sim_init_delayed_work(w, f)
#define INIT_WORK_ONSTACK INIT_WORK
#define destroy_work_on_stack(w) ((void)(w))
#define to_delayed_work(w) container_of(w, struct delayed_work, work)
bool queue_work(struct workqueue_struct *wq, struct work_struct *w);
bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *w,
			unsigned long delay);
bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *w,
		      unsigned long delay);
#define schedule_work(w) queue_work(sim_system_wq, w)
#define schedule_delayed_work(w, d) queue_delayed_work(sim_system_wq, w, d)
bool flush_work(struct work_struct *w);
bool flush_delayed_work(struct delayed_work *w);
void flush_workqueue(struct workqueue_struct *wq);
#define drain_workqueue flush_workqueue
bool cancel_work_sync(struct work_struct *w);
bool cancel_delayed_work(struct delayed_work *w);
bool cancel_delayed_work_sync(struct delayed_work *w);
unsigned int work_busy(struct work_struct *w);
#define work_pending(w) ({ sim_point(); (w)->pending; })
#define delayed_work_pending(w) work_pending(&(w)->work)

/* ---- RCU ---- */

struct rcu_head { struct rcu_head *next; void (*func)(struct rcu_head *head); };
void rcu_read_lock(void);
void rcu_read_unlock(void);
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
void sim_free_rcu(void *p);
#define kfree_rcu(p, field) sim_free_rcu(p)
#define kvfree_rcu(p, field) sim_free_rcu(p)
void synchronize_rcu(void);
void rcu_barrier(void);
#define rcu_dereference(p) READ_ONCE(p)
#define rcu_dereference_raw(p) READ_ONCE(p)
#define rcu_dereference_protected(p, c) (p)
#define rcu_dereference_check(p, c) READ_ONCE(p)
#define rcu_access_pointer(p) READ_ONCE(p)
#define rcu_assign_pointer(p, v) WRITE_ONCE(p, v)
#define RCU_INIT_POINTER(p, v) ((p) = (v))
#define rcu_replace_pointer(p, v, c) \
	({ __typeof__(p) _o = (p); WRITE_ONCE(p, v); _o; })
#define rcu_read_lock_held() (sim_current->rcu > 0)

struct srcu_struct {
	struct mutex lock;
	wait_queue_head_t wait;
	int now;
	unsigned int readers[2];
};
int init_srcu_struct(struct srcu_struct *s);
void cleanup_srcu_struct(struct srcu_struct *s);
int srcu_read_lock(struct srcu_struct *s);
void srcu_read_unlock(struct srcu_struct *s, int section);
void synchronize_srcu(struct srcu_struct *s);

#endif
