# SPDX-License-Identifier: Apache-2.0
# One entry for everything: "make help". Each target sets up what it needs, can
# be run twice, and writes only to build/ and .venv/.

SHELL := /bin/sh
PYTHON := .venv/bin/python

# The kernel to build for and to test under. Asked for when it is needed first:
# "make deps" may be what installs it.
KREL ?= $(eval KREL := $$(shell .ci/kernel))$(KREL)
NATIVE := $(shell find native -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  KREL=RELEASE               another kernel than the newest installed 6.1 or 6.12'

# ---- set-up ----

.PHONY: deps
deps: ## install missing system packages (as root)
	@.ci/deps build test
	@.ci/qemu

.PHONY: venv
venv: deps .venv/complete ## .venv with every command of ours

.venv/complete: pyproject.toml setup.cfg requirements.txt test-requirements.txt \
		lint-requirements.txt doc/requirements.txt .ci/venv
	@.ci/venv
	@touch $@

# ---- build ----

.PHONY: module
module: deps ## build/module/KREL/dm-vcache.ko
	@[ -n "$(KREL)" ]
	@$(MAKE) --no-print-directory "KREL=$(KREL)" "build/module/$(KREL)/dm-vcache.ko"

build/module/%/dm-vcache.ko: $(NATIVE) .ci/module
	@.ci/module $* build/module/$*

.PHONY: module-all
module-all: ## build for 6.1 and 6.12 with W=1, warnings are errors
	@.ci/deps build headers
	@for version in 6.1 6.12; do \
		release=$$(.ci/kernel --headers $$version) && \
		.ci/module "$$release" "build/module-all/$$release" W=1 || exit 1; \
	done

TOOLS := vcache-check vcache-dump vcache-repair
TOOLS_CORE := $(addprefix native/core/,crc32c.c index.c log.c meta.c recover.c seal.c)

.PHONY: tools
tools: $(addprefix build/tools/,$(TOOLS) vcache-mrc) ## build/tools/vcache-check, -dump, -repair, -mrc

$(addprefix build/tools/,$(TOOLS)): build/tools/vcache-%: native/tools/vcache_%.c \
		native/tools/pool.c native/tools/check.c $(TOOLS_CORE) \
		$(wildcard native/tools/*.h native/core/*.h)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $(filter %.c,$^)

build/tools/vcache-mrc: native/tools/vcache_mrc.c native/tools/trace.c native/core/shards.c \
		native/tools/trace.h native/core/shards.h native/core/types.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $(filter %.c,$^) -lm

FIRMWARE := $(wildcard firmware/*/*.c firmware/*/*.h)

.PHONY: firmware
firmware: deps build/firmware/vcache-ssd ## the emulated SSD: build/firmware/vcache-ssd

build/firmware/vcache-ssd: $(FIRMWARE)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $(filter %.c,$^)

.PHONY: firmware-arm
firmware-arm: deps ## the self-test for the Zynq-7000: build/firmware/zynq7000/vcache-fw.elf
	@$(MAKE) --no-print-directory -C firmware/port/zynq7000 OUT=$(CURDIR)/build/firmware/zynq7000

.PHONY: generate
generate: venv ## the committed files made from the netlink spec and the agent's options
	@$(PYTHON) native/netlink/generate.py
	@.venv/bin/oslo-config-generator --config-file agent/etc/config-generator.conf

.PHONY: docs
docs: venv ## build/doc/html/index.html
	@rm -rf build/doc
	@$(PYTHON) -m sphinx -q -W --keep-going -b html -d build/doc/doctrees doc/source build/doc/html
	@echo 'docs: build/doc/html/index.html'

# ---- check ----

.PHONY: lint
lint: ## ruff, hacking, mypy, checkpatch, sparse, shellcheck, bashate
	@.ci/deps build lint headers
	@$(MAKE) --no-print-directory .venv/complete
	@.ci/lint

.PHONY: test-quick
test-quick: venv ## unit and core tests but mutations and fuzzing: under two minutes
	@$(PYTHON) .ci/suite.py --quick unit core

.PHONY: openstack-unit
openstack-unit: venv ## Nova's side against real Nova and Placement code, in one process: two minutes
	@$(PYTHON) .ci/suite.py openstack

.PHONY: openstack-api
openstack-api: venv ## vcache-api and vcache-host with real Keystone, Placement and RabbitMQ: ten minutes
	@$(PYTHON) .ci/suite.py openstack_api

.PHONY: devstack-test
devstack-test: venv module ## the devstack plugin with devstack's own functions, in a root of its own: half an hour
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) .ci/suite.py devstack

.PHONY: openstack-test
openstack-test: openstack-parts ## what Nova's actions do to tags and dirty data, on the all-in-one; TESTS='-k rescue'
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m pytest \
		-p no:cacheprovider -v --tb=short tests/openstack_functional $(TESTS)

.PHONY: openstack-migration-test
openstack-migration-test: openstack-parts ## migrate, live-migrate, evacuate between two compute hosts; TESTS='-k live'
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m pytest \
		-p no:cacheprovider -v --tb=short tests/openstack_migration $(TESTS)

# What the all-in-one is made of.
.PHONY: openstack-parts
openstack-parts: venv module
	@.ci/deps build test openstack
	@.ci/openstack-venv

.PHONY: openstack-samples
openstack-samples: ## sample configuration and policy, all of them: build/openstack/etc/
	@.ci/openstack-venv
	@mkdir -p build/openstack/etc
	@for sample in nova_vcache/etc/*-generator.conf; do \
		build/openstack/venv/bin/oslo-config-generator --config-file $$sample || exit 1; done
	@cp agent/etc/*.sample build/openstack/etc
	@build/openstack/venv/bin/oslopolicy-sample-generator --namespace vcache \
		--output-file build/openstack/etc/policy.yaml.sample
	@echo 'openstack-samples: build/openstack/etc/'

.PHONY: test
test: venv module ## everything: also the kernel, libvirt and a power-cut sample
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) .ci/suite.py

.PHONY: test-debug
test-debug: venv ## the kernel tests with KASAN, lockdep, kmemleak, faults: build/debug/coverage.json
	@.ci/deps build test debug
	@release=$$(.ci/debug-kernel) && \
		.ci/module "$$release" "build/module/$$release" GCOV_PROFILE=y UBSAN_SANITIZE=y && \
		$(PYTHON) -m tests.kernel --kernel "$$release" --timeout 14400 && \
		mkdir -p build/debug && \
		.venv/bin/gcovr --root "build/module/$$release/tree" --txt - \
			--gcov-ignore-errors=no_working_dir_found --gcov-ignore-errors=source_not_found \
			--json-summary build/debug/coverage.json "build/module/$$release/tree"

.PHONY: powercut
powercut: venv module ## the whole power-cut replay: build/powercut/report.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m tests.powercut

# ---- show ----

.PHONY: demo
demo: venv module ## two VMs, isolated flushes, shares of a cache: build/demo/report.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.demo

.PHONY: openstack
openstack: openstack-parts ## the all-in-one: real services, instances, a transcript: build/openstack/transcript.txt; KEEP=1
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m tests.cloud $(if $(KEEP),--keep)

.PHONY: bench-overhead
bench-overhead: venv module ## cost without a flush: build/bench/overhead.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.overhead

.PHONY: bench-scale
bench-scale: venv module ## depth and jobs, recovery, memory, drain: build/bench/scale.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.scale

.PHONY: bench-write
bench-write: venv module ## tenants that write through a cache, against its peers: build/bench/write.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.write

.PHONY: bench-cache
bench-cache: venv module ## tenants with different working sets in a cache, against its peers: build/bench/cache.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.cache

.PHONY: bench-resize
bench-resize: venv module ## how fast shares and the pool change, and how near they come: build/bench/resize.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.resize

.PHONY: bench-lanes
bench-lanes: venv module ## how hot shared lanes get, and what migration costs: build/bench/lanes.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.lanes

.PHONY: bench-nvmetcp
bench-nvmetcp: venv firmware ## the emulated SSD's controller against the kernel's: build/bench/nvmetcp.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.nvmetcp

.PHONY: firmware-arm-selftest
firmware-arm-selftest: venv ## boot it, compare it with the host: build/firmware/zynq7000/selftest.json
	@$(PYTHON) -m tests.firmware.arm

.PHONY: bench-vflush
bench-vflush: venv module firmware ## the vFLUSH paper's experiments: build/bench/vflush.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.vflush

.PHONY: bench-svd
bench-svd: venv module firmware ## erases and WAF, images on the SSD or cached in it: build/bench/svd.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.svd

.PHONY: bench-mrc
bench-mrc: venv ## miss-ratio curves: how near, how fast, beside libCacheSim: build/bench/mrc.json
	@$(PYTHON) -m bench.mrc

.PHONY: bench-replace
bench-replace: venv ## what the cache's rules of replacement miss, beside LRU, S3-FIFO and others: build/bench/replace.json
	@$(PYTHON) -m bench.replace

.PHONY: bench-scheduler
bench-scheduler: ## filter and weigher for 1,000 and 10,000 hosts, beside Nova's: build/bench/scheduler.json
	@.ci/openstack-venv
	@build/openstack/venv/bin/python -m bench.scheduler

.PHONY: bench-api
bench-api: deps ## vcache-api with up to 1,000 hosts that report, beside Placement: build/bench/api.json
	@.ci/openstack-venv
	@build/openstack/venv/bin/python -m bench.api

.PHONY: clean
clean: ## remove build/ and .venv/
	rm -rf build .venv
