// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: labels of volumes.
 *
 * A label is a text in the slot of a volume. The module stores it and does not interpret it.
 * Programs in user space record there which device a volume belongs to, so that this is known
 * when their own records are lost or the cache device moves to another host.
 */
#include <linux/string.h>

#include "internal.h"

static bool vc_label_ok(const char *text)
{
	const char *c;

	for (c = text; *c; c++) {
		if (*c <= ' ' || *c > '~')
			return false;
	}
	return c - text <= VC_VOLUME_NAME_MAX;
}

/**
 * vcache_volume_label - store the label of a volume
 * @p: the pool
 * @id: number of the volume
 * @text: the label, printable ASCII without spaces
 * @error: set to what is wrong
 *
 * The label is durable when this returns. Return: 0 or a negative errno.
 */
int vcache_volume_label(struct vcache_pool *p, u32 id, const char *text,
			const char **error)
{
	struct vcache_volume *v;
	int r;

	if (!vc_label_ok(text)) {
		*error = "a label must have at most 127 printable characters, without spaces";
		return -EINVAL;
	}
	mutex_lock(&p->lock);
	v = p->loaded && p->state == VC_POOL_OK ? vcache_volume_find(p, id) : NULL;
	if (!v) {
		*error = "there is no such volume";
		r = -ENOENT;
	} else {
		*error = "cannot write to the cache device";
		r = vcache_slot_label(v, text);
	}
	mutex_unlock(&p->lock);
	return r;
}

/**
 * vcache_pool_labels - list the volumes of a pool and their labels
 * @p: the pool
 * @result: gets a line for each volume: its number, and its label if it has one
 * @maxlen: bytes of @result
 *
 * A result that fills @result may be incomplete; device mapper then asks for a larger one.
 */
void vcache_pool_labels(struct vcache_pool *p, char *result, unsigned int maxlen)
{
	struct vcache_volume *v;
	unsigned int sz = 0;

	*result = '\0';
	mutex_lock(&p->lock);
	list_for_each_entry(v, &p->volumes, node) {
		const char *label = p->loaded ? vcache_slot_name(v) : "";

		DMEMIT("%u%s%s\n", v->id, *label ? " " : "", label);
	}
	mutex_unlock(&p->lock);
}
