// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-vcache: entry and exit of the module, and the calls from lower layers to upper ones.
 *
 * The folders are layers, see README.md. A file includes only headers of its own layer and
 * of lower ones. What a lower layer asks or tells an upper one is in its operations, such as
 * &struct vcache_log_ops. This file connects them.
 */
#include <linux/module.h>

#include "control/control.h"
#include "vssd/vssd.h"

static const struct vcache_tag_ops vc_tag_calls = {
	.write_out = vcache_tag_work,
	.commit = vcache_commit_work,
	.join = vcache_volume_join,
	.leave = vcache_volume_leave,
	.announce = vcache_netlink_event,
};

static const struct vcache_buffer_ops vc_buffer_calls = {
	.written = vcache_lookup_change,
	.durable = vcache_flush_wake,
};

static const struct vcache_log_ops vc_log_calls = {
	.init_log = vcache_reads_init,
	.exit_log = vcache_reads_exit,
	.init_volume = vcache_destage_init,
	.take_chunk = vcache_chunk_take,
	.may_write = vcache_log_may_write,
	.hot = vcache_migrate_soon,
	.dirty = vcache_destage_soon,
	.dirty_limit = vcache_log_dirty_limit,
};

static int __init vc_init(void)
{
	int r;

	vcache_tag_register(&vc_tag_calls);
	vcache_log_register(&vc_log_calls);
	r = vcache_blocks_module_init(&vc_buffer_calls);
	if (r)
		return r;
	r = vcache_shrinker_init();
	if (r)
		goto bad_shrinker;
	r = vcache_netlink_init();
	if (r)
		goto bad_netlink;
	r = vcache_pool_init();
	if (r)
		goto bad_pool;
	r = vcache_target_init();
	if (r)
		goto bad_target;
	r = vcache_vssd_init();
	if (r)
		goto bad_vssd;
	return 0;
bad_vssd:
	vcache_target_exit();
bad_target:
	vcache_pool_exit();
bad_pool:
	vcache_netlink_exit();
bad_netlink:
	vcache_shrinker_exit();
bad_shrinker:
	vcache_blocks_module_exit();
	return r;
}

static void __exit vc_exit(void)
{
	vcache_vssd_exit();
	vcache_target_exit();
	vcache_pool_exit();
	vcache_netlink_exit();
	vcache_shrinker_exit();
	vcache_blocks_module_exit();
}

module_init(vc_init);
module_exit(vc_exit);

MODULE_DESCRIPTION(DM_NAME " flushes and cache shares by virtual disk");
MODULE_AUTHOR("The nova-vcache authors");
MODULE_LICENSE("GPL");
