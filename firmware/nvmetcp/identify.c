// SPDX-License-Identifier: Apache-2.0
/* Identify (NVMe Base 1.4 §5.15). */
#include "identify.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "ctrl.h"
#include "identity.h"

/* Longest normal shutdown, in us: the time of a complete flush. */
#define RTD3E_US 10000000u

static uint16_t invalid_namespace(struct request *r)
{
	return request_refuse(r, SC_INVALID_NAMESPACE,
			      offsetof(struct sqe, nsid));
}

static uint16_t check_cns(struct request *r)
{
	const struct subsys *s = r->conn->subsys;
	uint32_t nsid = request_nsid(r);

	switch (r->sqe.cdw10.b[0]) {
	case CNS_CONTROLLER:
		return SC_SUCCESS;
	case CNS_ACTIVE_NAMESPACES:
		/* The list has the namespaces after NSID. */
		if (nsid >= 0xfffffffe)
			return invalid_namespace(r);
		return SC_SUCCESS;
	case CNS_NAMESPACE:
		/* FFFFFFFFh requires Namespace Management. */
	case CNS_NAMESPACE_DESCRIPTORS:
		if (!subsys_has_namespace(s, nsid))
			return invalid_namespace(r);
		return SC_SUCCESS;
	case CNS_COMMAND_SET_CONTROLLER:
		/* CSI; Linux requests this independently of the version. */
		if (r->sqe.cdw11.b[3] != CSI_NVM)
			return request_invalid(r, cdw11);
		return SC_SUCCESS;
	case CNS_ENDURANCE_GROUPS:
		if (fdp_supported(s))
			return SC_SUCCESS;
		return request_invalid(r, cdw10);
	default:
		return request_invalid(r, cdw10);
	}
}

uint16_t identify_prepare(struct request *r)
{
	r->length = IDENTIFY_BYTES;
	return check_cns(r);
}

uint16_t discovery_identify_prepare(struct request *r)
{
	r->length = IDENTIFY_BYTES;
	if (r->sqe.cdw10.b[0] != CNS_CONTROLLER)
		return request_invalid(r, cdw10);
	return SC_SUCCESS;
}

/* Fields of an I/O controller. */
static void fill_io_controller(const struct ctrl *k,
			       struct identify_controller *id)
{
	const struct subsys *s = k->subsys;

	id->cntrltype = CNTRLTYPE_IO;
	id->cmic = s->config.multipath ? CMIC_MULTIPLE_CONTROLLERS : 0;
	id->oaes = cpu_to_le32(OAES_NAMESPACE_ATTRIBUTE);
	id->rtd3e = cpu_to_le32(RTD3E_US);
	id->acl = ABORT_LIMIT - 1;
	id->frmw = FRMW_ONE_SLOT_READ_ONLY;
	id->lpa = LPA_EFFECTS | LPA_EXTENDED;
	id->elpe = ERROR_LOG_ENTRIES - 1;
	id->sqes = SQES_64;
	id->cqes = CQES_16;
	id->nn = cpu_to_le32(s->config.namespaces);
	id->oncs = cpu_to_le16(ONCS_COMPARE | ONCS_DSM | ONCS_WRITE_ZEROES);
	id->vwc = VWC_PRESENT_BROADCAST;
	snprintf(id->subnqn, sizeof(id->subnqn), "%s", s->nqn);
	id->iorcsz = cpu_to_le32(sizeof(struct cqe) / 16);
}

static bool has_groups(const struct ctrl *k)
{
	return !k->discovery && fdp_supported(k->subsys);
}

static void fill_controller(const struct ctrl *k, void *data)
{
	struct identify_controller *id = data;

	memcpy(id->sn, k->subsys->serial, strlen(k->subsys->serial));
	memset(id->sn + strlen(k->subsys->serial), ' ',
	       sizeof(id->sn) - strlen(k->subsys->serial));
	memcpy(id->mn, MODEL_NUMBER, sizeof(id->mn));
	memcpy(id->fr, FIRMWARE_REVISION, sizeof(id->fr));
	id->mdts = MDTS;
	id->cntlid = cpu_to_le16(k->cntlid);
	id->ver = cpu_to_le32(NVME_VS);
	id->ctratt = cpu_to_le32(CTRATT_HOSTID_128 |
				 (has_groups(k) ? CTRATT_FDP : 0));
	id->endgidmax = cpu_to_le16(has_groups(k) ? FDP_ENDURANCE_GROUP : 0);
	id->aerl = AER_LIMIT - 1;
	id->kas = cpu_to_le16(KAS_UNITS);
	id->maxcmd = cpu_to_le16(QUEUE_ENTRIES);
	id->sgls = cpu_to_le32(SGLS_SUPPORTED | SGLS_OFFSET);
	id->ioccsz = cpu_to_le32((sizeof(struct sqe) + IN_CAPSULE_DATA) / 16);
	id->msdbd = 1;
	if (!k->discovery) {
		fill_io_controller(k, id);
		return;
	}
	id->cntrltype = CNTRLTYPE_DISCOVERY;
	id->lpa = LPA_EXTENDED;
	snprintf(id->subnqn, sizeof(id->subnqn), "%s", DISCOVERY_NQN);
}

static void fill_active_namespaces(const struct subsys *s, uint32_t after,
				   void *data)
{
	struct le32 *list = data;
	uint32_t nsid;

	for (nsid = after + 1; nsid <= s->config.namespaces; nsid++)
		*list++ = cpu_to_le32(nsid);
}

static void fill_namespace(const struct subsys *s, uint32_t nsid, void *data)
{
	struct identify_namespace *id = data;
	struct le64 lbas = cpu_to_le64(subsys_namespace_lbas(s));
	struct le16 block = cpu_to_le16((uint16_t)
				((VS_BLOCK >> s->config.lba_shift) - 1));

	id->nsze = lbas;
	id->ncap = lbas;
	id->nuse = lbas;
	id->nsfeat = NSFEAT_ATOMICS | NSFEAT_OPTIMAL_SIZES;
	id->dlfeat = DLFEAT_ZEROES_DEAC;
	id->nmic = NMIC_SHARED;
	/* Writes within a VS_BLOCK block are atomic, even with a power cut. */
	id->nawun = block;
	id->nawupf = block;
	id->nabsn = block;
	id->nabspf = block;
	id->npwg = block;
	id->npwa = block;
	id->npdg = block;
	id->npda = block;
	id->nows = block;
	id->nsattr = s->read_only ? NSATTR_WRITE_PROTECTED : 0;
	id->endgid = cpu_to_le16(fdp_supported(s) ? FDP_ENDURANCE_GROUP : 0);
	subsys_namespace_id(s, nsid, id->nguid);
	id->lbaf[0].lbads = s->config.lba_shift;
}

static uint8_t *put_descriptor(const struct subsys *s, uint32_t nsid,
			       uint8_t nidt, uint8_t *at)
{
	struct namespace_descriptor *d = (void *)at;

	d->nidt = nidt;
	d->nidl = sizeof(d->nid);
	subsys_namespace_id(s, nsid, d->nid);
	return at + sizeof(*d);
}

static void fill_nvm_controller(void *data)
{
	struct identify_nvm_controller *id = data;

	/* Dataset Management has no limit except its number of ranges. */
	id->wzsl = MDTS;
}

/* The groups from the one in CDW11 on: there is one. */
static void fill_groups(const struct request *r)
{
	struct le16 *list = (void *)r->data;

	if ((le32_to_cpu(r->sqe.cdw11) & 0xffff) > FDP_ENDURANCE_GROUP)
		return;
	list[0] = cpu_to_le16(1);
	list[1] = cpu_to_le16(FDP_ENDURANCE_GROUP);
}

uint16_t identify_execute(struct request *r)
{
	const struct subsys *s = r->conn->subsys;
	uint32_t nsid = request_nsid(r);
	uint8_t *at = r->data;

	memset(r->data, 0, r->length);
	switch (r->sqe.cdw10.b[0]) {
	case CNS_CONTROLLER:
		fill_controller(r->conn->ctrl, r->data);
		break;
	case CNS_ACTIVE_NAMESPACES:
		fill_active_namespaces(s, nsid, r->data);
		break;
	case CNS_NAMESPACE:
		fill_namespace(s, nsid, r->data);
		break;
	case CNS_NAMESPACE_DESCRIPTORS:
		at = put_descriptor(s, nsid, NIDT_NGUID, at);
		put_descriptor(s, nsid, NIDT_UUID, at);
		break;
	case CNS_COMMAND_SET_CONTROLLER:
		fill_nvm_controller(r->data);
		break;
	case CNS_ENDURANCE_GROUPS:
		fill_groups(r);
		break;
	}
	return SC_SUCCESS;
}
