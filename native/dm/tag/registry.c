// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: the list of all devices.
 *
 * The constructor of every table needs the list. So vc_registry_lock is held only to look
 * into it, and never while waiting for the lock of a device: that is held during a replay.
 * Who needs a device for longer without having a table counts as a user of it.
 */
#include "internal.h"

static DEFINE_MUTEX(vc_registry_lock);
static LIST_HEAD(vc_devices);
static u64 vc_registry_seq;

/* Woken when a device that is to be freed has lost its last user. */
static DECLARE_WAIT_QUEUE_HEAD(vc_registry_unused);

/**
 * vcache_dev_get - get the state of a mapped device for one more table, or make it
 * @md: the mapped device
 * @make: makes it
 *
 * Return: the state, or NULL without memory.
 */
struct vcache_dev *vcache_dev_get(struct mapped_device *md,
				  struct vcache_dev *(*make)(struct mapped_device *md))
{
	struct vcache_dev *dev;

	mutex_lock(&vc_registry_lock);
	list_for_each_entry(dev, &vc_devices, registry) {
		if (dev->md == md)
			goto found;
	}
	dev = make(md);
	if (!dev)
		goto out;
	dev->seq = ++vc_registry_seq;
	list_add_tail(&dev->registry, &vc_devices);
found:
	dev->tables++;
out:
	mutex_unlock(&vc_registry_lock);
	return dev;
}

static bool vc_dev_unused(struct vcache_dev *dev)
{
	bool unused;

	mutex_lock(&vc_registry_lock);
	unused = !dev->users;
	mutex_unlock(&vc_registry_lock);
	return unused;
}

/**
 * vcache_registry_put - drop a table's reference to the state of its device
 * @dev: the device
 *
 * Return: whether it was the last one. Then nobody else uses or finds the device any more.
 */
bool vcache_registry_put(struct vcache_dev *dev)
{
	bool last;

	mutex_lock(&vc_registry_lock);
	last = !--dev->tables;
	if (last)
		list_del(&dev->registry);
	mutex_unlock(&vc_registry_lock);
	if (last)
		wait_event(vc_registry_unused, vc_dev_unused(dev));
	return last;
}

static bool vc_dev_has_number(const struct vcache_dev *dev, u64 number)
{
	return disk_devt(dm_disk(dev->md)) == number;
}

static bool vc_dev_is_after(const struct vcache_dev *dev, u64 seq)
{
	return dev->seq > seq;
}

/* Find the first device that fits, and keep it. */
static struct vcache_dev *vc_dev_use(bool (*fits)(const struct vcache_dev *, u64),
				     u64 key)
{
	struct vcache_dev *dev, *found = NULL;

	mutex_lock(&vc_registry_lock);
	list_for_each_entry(dev, &vc_devices, registry) {
		if (!fits(dev, key))
			continue;
		dev->users++;
		found = dev;
		break;
	}
	mutex_unlock(&vc_registry_lock);
	return found;
}

/**
 * vcache_dev_use_number - find a device by its number, and keep it
 * @number: major and minor
 *
 * Return: the device, for vcache_dev_unuse(); or NULL.
 */
struct vcache_dev *vcache_dev_use_number(dev_t number)
{
	return vc_dev_use(vc_dev_has_number, number);
}

/**
 * vcache_dev_use_after - find the next device that was made, and keep it
 * @seq: vcache_dev.seq of the device before it, or 0
 *
 * Return: the device, for vcache_dev_unuse(); or NULL.
 */
struct vcache_dev *vcache_dev_use_after(u64 seq)
{
	return vc_dev_use(vc_dev_is_after, seq);
}

/**
 * vcache_dev_unuse - do not keep a device any longer
 * @dev: the device; it may be freed by this
 */
void vcache_dev_unuse(struct vcache_dev *dev)
{
	mutex_lock(&vc_registry_lock);
	if (!--dev->users)
		wake_up_all(&vc_registry_unused);
	mutex_unlock(&vc_registry_lock);
}

/**
 * vcache_dev_freeze - note that a resize of the pool suspends a device, or that it has
 * @md: the mapped device
 * @on: the suspend is about to begin
 *
 * Return: false if the origin of the device hangs.
 */
bool vcache_dev_freeze(struct mapped_device *md, bool on)
{
	struct vcache_dev *dev;
	bool hung = false;

	mutex_lock(&vc_registry_lock);
	list_for_each_entry(dev, &vc_devices, registry) {
		if (dev->md != md)
			continue;
		WRITE_ONCE(dev->frozen, on);
		hung = READ_ONCE(dev->hung);
	}
	mutex_unlock(&vc_registry_lock);
	return !hung;
}
