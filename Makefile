# SPDX-License-Identifier: Apache-2.0
# "make help" lists the targets. Each target installs what it needs, can be run
# again at any time, and writes only to build/ and .venv/.

SHELL := /bin/sh
PYTHON := .venv/bin/python

# The kernel to build for and to test under. Make evaluates it at its first use,
# since "make deps" may install the kernel.
KREL ?= $(eval KREL := $$(shell .ci/kernel))$(KREL)
NATIVE := $(shell find native -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  SEED=CASE                  make sim: run one case again, as a violation names it'
	@echo '  KREL=RELEASE               kernel release, default: newest installed 6.1, else 6.12'

# ---- set-up ----

.PHONY: deps
deps: ## install missing system packages (needs root)
	@.ci/deps build test
	@.ci/qemu

.PHONY: venv
venv: deps .venv/complete ## create .venv with the project and its commands

.venv/complete: pyproject.toml setup.cfg test-requirements.txt \
		lint-requirements.txt doc/requirements.txt .ci/venv
	@.ci/venv
	@touch $@

# ---- build ----

.PHONY: module
module: deps ## build the kernel module: build/module/KREL/dm-vcache.ko
	@[ -n "$(KREL)" ]
	@$(MAKE) --no-print-directory "KREL=$(KREL)" "build/module/$(KREL)/dm-vcache.ko"

build/module/%/dm-vcache.ko: $(NATIVE) .ci/module
	@.ci/module $* build/module/$* $(if $(findstring -vcache-uml,$*),,$(WARN))

.PHONY: module-uml
module-uml: ## build the module for User Mode Linux, and that kernel if it is not in the cache
	@release=$$(.ci/uml-kernel --release) && [ -n "$$release" ] && \
		$(MAKE) --no-print-directory "build/module/$$release/dm-vcache.ko"

# How the module is built for the debug kernels: with line counts, and checks of undefined behaviour.
DEBUG_MODULE := GCOV_PROFILE=y UBSAN_SANITIZE=y

.PHONY: module-uml-storage
module-uml-storage: ## build the module for make cinder-test, and that kernel if it is not in the cache
	@release=$$(.ci/uml-kernel --storage --release) && [ -n "$$release" ] && \
		$(MAKE) --no-print-directory "build/module/$$release/dm-vcache.ko"

.PHONY: module-uml-debug
module-uml-debug: ## build the module for make test-debug, and that kernel if it is not in the cache
	@release=$$(.ci/uml-kernel --debug --release) && [ -n "$$release" ] && \
		.ci/module "$$release" "build/module/$$release" $(DEBUG_MODULE)

.PHONY: module-all
module-all: ## build the module for all kernels of Debian from 6.1 on, W=1: build/module-all/report.json
	@.ci/deps build roots
	@.ci/module-all

.PHONY: deb
deb: ## build the Debian packages and check them with lintian: build/deb/*.deb
	@.ci/deps deb
	@.ci/deb

.PHONY: rpm
rpm: ## build the RPMs: build/rpm/*.rpm
	@.ci/deps rpm
	@.ci/rpm

TOOLS := vcache-check vcache-dump vcache-repair
TOOLS_CORE := $(addprefix native/core/,crc32c.c index.c log.c meta.c recover.c seal.c)

.PHONY: tools
tools: $(addprefix build/tools/,$(TOOLS) vcache-mrc) ## build vcache-check, -dump, -repair and -mrc: build/tools/

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
firmware: deps build/firmware/vcache-ssd ## build the emulated SSD: build/firmware/vcache-ssd

# Suites that run at the same time may build it at the same time.
build/firmware/vcache-ssd: $(FIRMWARE)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@.$$$$ $(filter %.c,$^) && \
		mv $@.$$$$ $@

.PHONY: firmware-arm
firmware-arm: deps ## build the Zynq-7000 self-test: build/firmware/zynq7000/vcache-fw.elf
	@$(MAKE) --no-print-directory -C firmware/port/zynq7000 OUT=$(CURDIR)/build/firmware/zynq7000

.PHONY: generate
generate: venv ## regenerate the committed files from the netlink spec and the agent's options
	@$(PYTHON) native/netlink/generate.py
	@.venv/bin/oslo-config-generator --config-file agent/etc/config-generator.conf

.PHONY: docs
docs: venv ## build the documentation: build/doc/html/index.html
	@rm -rf build/doc
	@$(PYTHON) -m sphinx -q -W --keep-going -b html -d build/doc/doctrees doc/source build/doc/html
	@echo 'docs: build/doc/html/index.html'

# ---- check ----

.PHONY: lint
lint: ## run ruff, hacking, mypy, checkpatch, sparse, shellcheck, bashate
	@.ci/deps build lint headers
	@$(MAKE) --no-print-directory .venv/complete
	@.ci/lint

.PHONY: test-quick
test-quick: venv ## run unit and core tests and some of the target, in two minutes; the first run builds a kernel
	@target=kernel-quick; \
	.ci/uml-kernel >/dev/null || { \
		target=; echo 'test-quick: no User Mode Linux, so the target is not tested' >&2; }; \
	$(PYTHON) .ci/suite.py --quick unit core $$target

.PHONY: openstack-unit
openstack-unit: venv ## test nova_vcache with the code of Nova and Placement: two minutes
	@$(PYTHON) .ci/suite.py openstack

.PHONY: openstack-releases
openstack-releases: venv ## the same with Nova 32 and 33, in environments of their own: ten minutes
	@set -e; for release in 32 33; do \
		.ci/nova-venv $$release; \
		python="build/openstack/nova-$$release/bin/python -m pytest -q -p no:cacheprovider"; \
		$$python tests/openstack --ignore tests/openstack/test_nova.py; \
		OS_NOVA_DISABLE_EVENTLET_PATCHING=0 $$python tests/openstack/test_nova.py; \
	done

.PHONY: openstack-api
openstack-api: venv ## test vcache-api and vcache-host with Keystone, Placement, RabbitMQ: ten minutes
	@$(PYTHON) .ci/suite.py openstack_api

.PHONY: cinder-unit
cinder-unit: venv ## test cinder_driver with Cinder's tests of drivers: two minutes
	@$(PYTHON) .ci/suite.py cinder

.PHONY: cinder-test
cinder-test: cinder-unit ## test cinder_driver with Cinder, LVM, agent and target, half an hour; TESTS='-k retype'
	@.ci/deps build test cinder
	@.ci/openstack-venv --compile
	@build/openstack/venv/bin/python -m tests.cinder -W ignore $(TESTS)

.PHONY: devstack-test
devstack-test: venv module ## test the devstack plugin in a copy of the root file system: half an hour
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) .ci/suite.py devstack

.PHONY: deploy-test
deploy-test: deb ## apply the roles of devstack/ansible to roots of Debian 13, build images: ten minutes
	@.ci/deps build deploy
	@.ci/deploy-venv
	@build/deploy/venv/bin/python -m pytest -p no:cacheprovider tests/deploy $(TESTS)

.PHONY: openstack-test
openstack-test: openstack-parts ## test the effects of Nova's actions on the all-in-one; TESTS='-k rescue'
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m pytest \
		-p no:cacheprovider -v --tb=short tests/openstack_functional $(TESTS)

.PHONY: openstack-migration-test
openstack-migration-test: openstack-parts ## test migration and evacuation between two compute hosts; TESTS='-k live'
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m pytest \
		-p no:cacheprovider -v --tb=short tests/openstack_migration $(TESTS)

.PHONY: horizon-test
horizon-test: venv ## test the dashboard with Django's test runner and in Chromium: twenty minutes; TESTS='-k flavor'
	@.ci/deps build test horizon
	@.ci/horizon-venv
	@.ci/openstack-venv
	@build/horizon/venv/bin/django-admin test tests.horizon.panels --pythonpath . \
		--settings tests.horizon.panels.settings
	@build/openstack/venv/bin/python -m pytest -p no:cacheprovider -v --tb=short \
		tests/horizon/browser $(TESTS)

.PHONY: dashboard-policy
dashboard-policy: ## generate the dashboard's copy of the default policies
	@.ci/horizon-venv
	@{ printf '# SPDX-License-Identifier: Apache-2.0\n# Generated by "make dashboard-policy".\n'; \
	build/horizon/venv/bin/django-admin dump_default_policies --namespace vcache --pythonpath . \
		--settings tests.horizon.panels.settings; } \
		>nova_vcache/dashboard/conf/default_policies/vcache.yaml

# The parts of the all-in-one.
.PHONY: openstack-parts
openstack-parts: venv module
	@.ci/deps build test openstack
	@.ci/openstack-venv --compile

.PHONY: openstack-samples
openstack-samples: ## generate all sample configuration and policy files: build/openstack/etc/
	@.ci/openstack-venv
	@mkdir -p build/openstack/etc
	@for sample in nova_vcache/etc/*-generator.conf; do \
		build/openstack/venv/bin/oslo-config-generator --config-file $$sample || exit 1; done
	@cp agent/etc/*.sample build/openstack/etc
	@build/openstack/venv/bin/oslopolicy-sample-generator --namespace vcache \
		--output-file build/openstack/etc/policy.yaml.sample
	@echo 'openstack-samples: build/openstack/etc/'

# With the warnings that tests/packaging looks for, so that it need not build the module again.
.PHONY: test
test: export WARN = W=1
test: deps ## run all tests, including kernel, libvirt and a power-cut sample
	@$(MAKE) --no-print-directory -j2 venv module
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) .ci/suite.py

.PHONY: reboot-test
reboot-test: venv deb ## restart Debian 12 and 13 with our packages in all ways: build/test/reboot.json; ROOTS=debian12
	@.ci/deps build test roots
	@$(PYTHON) -m tests.reboot $(ROOTS)
	@$(MAKE) --no-print-directory reboot-nova

.PHONY: reboot-nova
reboot-nova: venv ## install Debian 13 by the guide, restart it with an instance of nova-compute; ROOTS=debian12
	@.ci/deps build test roots openstack
	@.ci/openstack-venv
	@build/openstack/venv/bin/python -m tests.reboot.nova $(ROOTS)

.PHONY: kernel-test
kernel-test: venv ## run kernel tests under 6.1, 6.12 and Debian's newest ones: build/test/kernels.json; KERNELS=trixie:6.12
	@.ci/deps build test roots
	@.ci/kernel-test $(KERNELS)

.PHONY: pair-test
pair-test: venv module-uml ## test live migration between two hosts with a shared disk; TESTS='-k back'
	@$(PYTHON) -m tests.pair $(TESTS)

.PHONY: test-debug
test-debug: venv module-uml-debug ## run the kernel tests with KASAN, lockdep, kmemleak: build/debug/coverage.json
	@$(PYTHON) -m tests.kernel --uml --debug --timeout 7200 -p no:cacheprovider -m 'not smp'; \
		status=$$?; tree=build/module/$$(.ci/uml-kernel --debug --release)/tree; \
		.ci/coverage uml "$$tree" "$$tree" && exit $$status

.PHONY: test-debug-smp
test-debug-smp: venv ## the same in the box for tests that need two processors; adds to the coverage
	@.ci/deps build test debug
	@release=$$(.ci/debug-kernel) && \
		.ci/module "$$release" "build/module/$$release" $(DEBUG_MODULE) && { \
		$(PYTHON) -m tests.kernel --kernel "$$release" --timeout 14400 -p no:cacheprovider -m smp; \
		status=$$?; tree=build/module/$$release/tree; \
		.ci/coverage smp "$$tree" "$$tree" && exit $$status; }

.PHONY: test-kcsan
test-kcsan: venv ## run these tests in the box under a kernel that looks for data races (KCSAN)
	@.ci/deps build test debug
	@release=$$(.ci/debug-kernel --kcsan) && \
		.ci/module "$$release" "build/module/$$release" && \
		$(PYTHON) -m tests.kernel --kernel "$$release" --timeout 14400 -p no:cacheprovider -m smp

.PHONY: xfstests xfstests-dir
xfstests: xfstests-dir venv module-uml ## run a compiled xfstests on a volume and on dm-linear: build/xfstests/report.json; XFSTESTS=DIR
	@.ci/deps build test xfstests
	@$(PYTHON) -m tests.xfstests $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FS),--fs $(FS)) \
		$(if $(GROUPS),--groups $(GROUPS)) $(if $(TESTS),--tests $(TESTS)) \
		$(if $(RESUME),--resume) "$(XFSTESTS)"

# First, since the kernel may have to be built for the rest.
xfstests-dir:
	@[ -x "$(XFSTESTS)/check" ] || { echo 'xfstests: XFSTESTS=DIR must name a compiled xfstests' >&2; exit 2; }

.PHONY: sim
sim: venv ## simulate the data plane and cut its power at each step: build/sim/report.json
	@$(PYTHON) -m tests.sim $(if $(SEED),--replay '$(SEED)') \
		$(if $(SECONDS),--seconds $(SECONDS))

.PHONY: sim-coverage
sim-coverage: venv ## count the lines that the simulation executes; adds to build/debug/coverage.json
	@$(PYTHON) -m tests.sim --coverage $(if $(SECONDS),--seconds $(SECONDS))
	@.ci/coverage sim build/sim/coverage/objects native

.PHONY: vssd-fuzz
vssd-fuzz: venv ## fuzz the protocol of elastic SSDs on both sides; MESSAGES=1000000 SEED=1
	@$(PYTHON) -m tests.unit.vssd_fuzz --messages $(or $(MESSAGES),1000000) --seed $(or $(SEED),1)

.PHONY: agent-churn
agent-churn: venv ## kill the agent at random moments while VMs live: build/test/churn.json; SECONDS=3600 SEED=1
	@$(PYTHON) -m tests.host --uml --timeout "$$(( $(or $(SECONDS),3600) * 2 + 3600 ))" \
		-p no:cacheprovider -s --churn-seconds $(or $(SECONDS),3600) \
		--churn-seed $(or $(SEED),1) tests/host/test_churn.py

.PHONY: powercut
powercut: venv module ## run the complete power-cut replay: build/powercut/report.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m tests.powercut

# ---- show ----

.PHONY: demo
demo: venv module-uml ## run two VMs with isolated flushes and shares of a cache: build/demo/report.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.demo

.PHONY: openstack
openstack: openstack-parts ## run OpenStack with instances on this machine: build/openstack/transcript.txt; KEEP=1
	@VCACHE_KERNEL="$(KREL)" build/openstack/venv/bin/python -m tests.cloud $(if $(KEEP),--keep)

.PHONY: bench-overhead
bench-overhead: venv module ## measure the cost of I/O without flushes: build/bench/overhead.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.overhead

.PHONY: bench-scale
bench-scale: venv module ## measure queue depth, jobs, recovery, memory, drain: build/bench/scale.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.scale

.PHONY: bench-write
bench-write: venv module ## compare writing tenants with other caches: build/bench/write.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.write

.PHONY: bench-database
bench-database: venv module ## compare PostgreSQL and SQLite on vcache and other caches, hours: build/bench/database.json
	@.ci/deps build test database
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.database

.PHONY: bench-cache
bench-cache: venv module ## compare tenants with different working sets with other caches: build/bench/cache.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.cache

.PHONY: bench-resize
bench-resize: venv module ## measure speed and accuracy of share and pool changes: build/bench/resize.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.resize

.PHONY: bench-lanes
bench-lanes: venv module ## measure hot data in shared lanes and the cost of migration: build/bench/lanes.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.lanes

.PHONY: bench-nvmetcp
bench-nvmetcp: venv firmware ## compare the emulated SSD's controller with the kernel's: build/bench/nvmetcp.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.nvmetcp

.PHONY: firmware-arm-selftest
firmware-arm-selftest: venv ## boot the self-test, compare it with the host: build/firmware/zynq7000/selftest.json
	@$(PYTHON) -m tests.firmware.arm

.PHONY: bench-vflush
bench-vflush: venv module firmware ## repeat the vFLUSH paper's experiments: build/bench/vflush.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.vflush

.PHONY: bench-svd
bench-svd: venv module firmware ## measure erases and write amplification of an SSD cache: build/bench/svd.json
	@VCACHE_KERNEL="$(KREL)" $(PYTHON) -m bench.svd

.PHONY: bench-fdp
bench-fdp: venv ## write amplification of four tenants without and with placement handles: build/bench/fdp.json
	@$(PYTHON) -m bench.fdp

.PHONY: bench-covert
bench-covert: venv ## covert channel between two VMs by the time of fsyncs: build/bench/covert.json
	@$(PYTHON) -m bench.covert

.PHONY: bench-mrc
bench-mrc: venv ## compare miss-ratio curves with libCacheSim, error and speed: build/bench/mrc.json
	@$(PYTHON) -m bench.mrc

.PHONY: bench-replace
bench-replace: venv ## compare miss ratios of the cache with LRU, S3-FIFO and others: build/bench/replace.json
	@$(PYTHON) -m bench.replace

.PHONY: bench-agent
bench-agent: venv module-uml ## measure the agent's time and memory with 250 disks: build/bench/agent.json
	@$(PYTHON) -m bench.agent

.PHONY: bench-migration
bench-migration: venv module-uml ## measure synchronous writes across a live migration: build/bench/migration.json
	@$(PYTHON) -m bench.migration

.PHONY: bench-policies
bench-policies: venv ## compare divisions of a cache on real traces: build/bench/policies.json
	@$(PYTHON) -m bench.policies

.PHONY: bench-scheduler
bench-scheduler: ## compare filter and weigher with Nova's, up to 10,000 hosts: build/bench/scheduler.json
	@.ci/openstack-venv
	@build/openstack/venv/bin/python -m bench.scheduler

.PHONY: bench-api
bench-api: deps ## measure vcache-api with up to 1,000 reporting hosts: build/bench/api.json
	@.ci/openstack-venv
	@build/openstack/venv/bin/python -m bench.api

.PHONY: clean
clean: ## remove build/ and .venv/
	rm -rf build .venv
