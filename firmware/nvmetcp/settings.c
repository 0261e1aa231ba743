// SPDX-License-Identifier: Apache-2.0
/* Features that NVMe requires and that have no effect here (NVMe Base 1.4 §5.21.1). */
#include "settings.h"

#include "command.h"
#include "conn.h"
#include "ctrl.h"

/* Arbitration: bits 7:3 are reserved. */
#define ARBITRATION_MASK 0xffffff07u
/* Power Management: power state and workload hint; there is state 0 only. */
#define POWER_STATE 0x1fu
/* Temperature Threshold */
#define THRESHOLD_VALUE 0xffffu
#define THRESHOLD_SENSOR_SHIFT 16
#define THRESHOLD_SENSOR 0xfu
#define THRESHOLD_SENSOR_ALL 0xfu
#define THRESHOLD_TYPE_SHIFT 20
#define THRESHOLD_TYPE 3u
#define THRESHOLD_OVER 0u
#define THRESHOLD_UNDER 1u
/* Error Recovery: time limit. DULBE needs a namespace that supports it. */
#define RECOVERY_MASK 0xffffu
/* Write Atomicity Normal: DN. */
#define ATOMICITY_MASK 1u

void settings_reset(struct settings *s)
{
	*s = (struct settings){ .over = THRESHOLD_VALUE };
}

bool settings_has(uint8_t feature)
{
	return feature == FEATURE_ARBITRATION ||
	       feature == FEATURE_POWER_MANAGEMENT ||
	       feature == FEATURE_TEMPERATURE_THRESHOLD ||
	       feature == FEATURE_ERROR_RECOVERY ||
	       feature == FEATURE_WRITE_ATOMICITY;
}

/* The threshold that a command means; NULL if there is no such one. */
static uint16_t *threshold(struct settings *s, uint32_t dword, bool set)
{
	uint32_t sensor = dword >> THRESHOLD_SENSOR_SHIFT & THRESHOLD_SENSOR;
	uint32_t type = dword >> THRESHOLD_TYPE_SHIFT & THRESHOLD_TYPE;

	/* There is the composite temperature (0) only. */
	if (sensor && !(set && sensor == THRESHOLD_SENSOR_ALL))
		return NULL;
	if (type == THRESHOLD_OVER)
		return &s->over;
	return type == THRESHOLD_UNDER ? &s->under : NULL;
}

/**
 * settings_get - Get Features
 * @r: the command
 *
 * Return: the status.
 */
uint16_t settings_get(struct request *r)
{
	struct settings *s = &r->conn->ctrl->settings;
	uint16_t *kelvin;

	switch (r->sqe.cdw10.b[0]) {
	case FEATURE_ARBITRATION:
		r->dw0 = s->arbitration;
		break;
	case FEATURE_TEMPERATURE_THRESHOLD:
		kelvin = threshold(s, le32_to_cpu(r->sqe.cdw11), false);
		if (!kelvin)
			return request_invalid(r, cdw11);
		r->dw0 = *kelvin;
		break;
	case FEATURE_ERROR_RECOVERY:
		r->dw0 = s->recovery;
		break;
	case FEATURE_WRITE_ATOMICITY:
		r->dw0 = s->atomicity;
		break;
	default:
		r->dw0 = 0;
	}
	return SC_SUCCESS;
}

/* Store a value without reserved bits. */
static uint16_t store(struct request *r, uint32_t *to, uint32_t mask)
{
	uint32_t value = le32_to_cpu(r->sqe.cdw11);

	if (value & ~mask)
		return request_invalid(r, cdw11);
	*to = value;
	return SC_SUCCESS;
}

/**
 * settings_set - Set Features
 * @r: the command
 *
 * Return: the status; Invalid Field for a reserved bit, a power state or a sensor that
 * does not exist.
 */
uint16_t settings_set(struct request *r)
{
	struct settings *s = &r->conn->ctrl->settings;
	uint32_t value = le32_to_cpu(r->sqe.cdw11);
	uint16_t *kelvin;

	switch (r->sqe.cdw10.b[0]) {
	case FEATURE_ARBITRATION:
		return store(r, &s->arbitration, ARBITRATION_MASK);
	case FEATURE_TEMPERATURE_THRESHOLD:
		kelvin = threshold(s, value, true);
		if (!kelvin)
			return request_invalid(r, cdw11);
		*kelvin = value & THRESHOLD_VALUE;
		return SC_SUCCESS;
	case FEATURE_ERROR_RECOVERY:
		return store(r, &s->recovery, RECOVERY_MASK);
	case FEATURE_WRITE_ATOMICITY:
		return store(r, &s->atomicity, ATOMICITY_MASK);
	default:
		return value & POWER_STATE ? request_invalid(r, cdw11) :
					     SC_SUCCESS;
	}
}
