// SPDX-License-Identifier: Apache-2.0
/* The discovery service, with one subsystem (Fabrics 1.1 §5.3). */
#include <stdio.h>

#include "conn.h"
#include "log.h"

_Static_assert(LOG_DISCOVERY_BYTES == sizeof(struct discovery_header) +
	       sizeof(struct discovery_entry), "one entry");

/* TRSVCID and TRADDR are padded with spaces, names with NULs. */
static void pad(char *to, size_t size, const char *text)
{
	size_t i;

	for (i = 0; i < size; i++)
		to[i] = *text ? *text++ : ' ';
}

/**
 * log_discovery - the discovery log page
 * @c: the connection, whose local address the page reports
 * @w: the requested part
 */
void log_discovery(const struct conn *c, struct log_window *w)
{
	/* The content never changes, so the generation is constant. */
	struct discovery_header header = {
		.genctr = cpu_to_le64(1),
		.numrec = cpu_to_le64(1),
	};
	struct discovery_entry entry = {
		.trtype = TRTYPE_TCP,
		.adrfam = c->local_ipv6 ? ADRFAM_IPV6 : ADRFAM_IPV4,
		.subtype = SUBTYPE_NVM,
		.treq = TREQ_NO_SQ_FLOW,
		.portid = cpu_to_le16(1),
		.cntlid = cpu_to_le16(CNTLID_DYNAMIC),
		.asqsz = cpu_to_le16(ADMIN_QUEUE_ENTRIES),
	};
	char port[8];

	snprintf(port, sizeof(port), "%u", c->local_port);
	pad(entry.trsvcid, sizeof(entry.trsvcid), port);
	pad(entry.traddr, sizeof(entry.traddr), c->local);
	snprintf(entry.subnqn, sizeof(entry.subnqn), "%s", c->subsys->nqn);
	log_put(w, 0, &header, sizeof(header));
	log_put(w, sizeof(header), &entry, sizeof(entry));
}
