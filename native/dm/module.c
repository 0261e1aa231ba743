// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: entry and exit of the module, and the calls from lower layers to upper ones.
 *
 * The folders are layers, see README.md. A file includes only headers of its own layer and
 * of lower ones. What a lower layer asks or tells an upper one is in its operations, such as
 * &struct vc_log_ops. This file connects them.
 */
#include <linux/module.h>

#include "control/control.h"

static const struct vc_tag_ops vc_tag_calls = {
	.write_out = vc_tag_work,
	.commit = vc_commit_work,
	.join = vc_volume_join,
	.leave = vc_volume_leave,
	.announce = vc_netlink_event,
};

static const struct vc_buffer_ops vc_buffer_calls = {
	.written = vc_lookup_change,
	.durable = vc_flush_wake,
};

static const struct vc_log_ops vc_log_calls = {
	.init_log = vc_reads_init,
	.exit_log = vc_reads_exit,
	.init_volume = vc_destage_init,
	.take_chunk = vc_chunk_take,
	.may_write = vc_log_may_write,
	.hot = vc_migrate_soon,
	.dirty = vc_destage_soon,
};

static int __init vc_init(void)
{
	int r;

	vc_tag_register(&vc_tag_calls);
	vc_log_register(&vc_log_calls);
	r = vc_blocks_module_init(&vc_buffer_calls);
	if (r)
		return r;
	r = vc_shrinker_init();
	if (r)
		goto bad_shrinker;
	r = vc_netlink_init();
	if (r)
		goto bad_netlink;
	r = vc_pool_init();
	if (r)
		goto bad_pool;
	r = vc_target_init();
	if (r)
		goto bad_target;
	return 0;
bad_target:
	vc_pool_exit();
bad_pool:
	vc_netlink_exit();
bad_netlink:
	vc_shrinker_exit();
bad_shrinker:
	vc_blocks_module_exit();
	return r;
}

static void __exit vc_exit(void)
{
	vc_target_exit();
	vc_pool_exit();
	vc_netlink_exit();
	vc_shrinker_exit();
	vc_blocks_module_exit();
}

module_init(vc_init);
module_exit(vc_exit);

MODULE_DESCRIPTION(DM_NAME " flushes and cache shares by virtual disk");
MODULE_AUTHOR("The nova-vcache authors");
MODULE_LICENSE("GPL");
