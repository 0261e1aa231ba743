# SPDX-License-Identifier: Apache-2.0
# Install the files of one package: make -f agent/packaging/install.mk install-agent D=DIR PYTHON=... UNITS=...
# Both the Debian packages and the RPMs do this, in a tree of .ci/package-tree.
#   D       the folder that becomes the root
#   PYTHON  folder of Python packages, such as /usr/lib/python3/dist-packages
#   UNITS   folder of systemd units
#   NAME    name of the binary package, for its folder in /usr/share/doc
SHELL := /bin/bash
.SHELLFLAGS := -e -c
PACKAGING := agent/packaging
MODULE_VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"$$/\1/p' native/dkms.conf)
SOURCE := $(D)/usr/src/nova-vcache-$(MODULE_VERSION)
INSTALL := install -D -m 0644
MAN := $(patsubst $(PACKAGING)/man/%.rst,man/%,$(wildcard $(PACKAGING)/man/*.rst))

.PHONY: man install-dkms install-agent install-guest install-guest-library install-guest-nginx install-libvssd install-api install-plugin install-cinder install-doc

man: $(MAN)

man/%: $(PACKAGING)/man/%.rst
	mkdir -p man
	rst2man $< $@

# dkms.conf is installed by dh_dkms, or by the spec.
install-dkms:
	mkdir -p $(SOURCE)
	cp -r native/core native/dm native/netlink $(SOURCE)/
	find $(SOURCE) -name README.md -delete
	rm -f $(SOURCE)/netlink/*.py
	$(INSTALL) agent/etc/nova-vcache.modules-load $(D)/usr/lib/modules-load.d/nova-vcache.conf

install-agent: man
	mkdir -p $(D)$(PYTHON)
	cp -r wheel/vcache_agent $(D)$(PYTHON)/
	find $(D)$(PYTHON) -name README.md -delete
	for name in vcache vcache-agent vcache-host; do \
		install -D -m 0755 $(PACKAGING)/commands/$$name $(D)/usr/bin/$$name; done
	install -D -m 0755 agent/etc/vcache-udev $(D)/usr/lib/nova-vcache/vcache-udev
	install -D -m 0755 agent/etc/vcache-generator $(D)/usr/lib/systemd/system-generators/vcache-generator
	install -D -m 0755 libvirt_hooks/qemu $(D)/etc/libvirt/hooks/qemu.d/50-vcache
	for unit in agent/etc/*.service nova_vcache/etc/vcache-host.service; do \
		$(INSTALL) $$unit $(D)$(UNITS)/$${unit##*/}; done
	$(INSTALL) agent/etc/99-vcache.rules $(D)/usr/lib/udev/rules.d/99-vcache.rules
	for sample in agent/etc/*.sample; do \
		$(INSTALL) $$sample $(D)/usr/share/doc/$(NAME)/examples/$${sample##*/}; done
	mkdir -p $(D)/usr/share/nova-vcache $(D)/etc/vcache
	cp -r agent/etc/grafana agent/etc/prometheus $(D)/usr/share/nova-vcache/
	$(INSTALL) $(PACKAGING)/completion/vcache $(D)/usr/share/bash-completion/completions/vcache
	$(INSTALL) -t $(D)/usr/share/man/man8 man/vcache.8 man/vcache-agent.8 man/vcache-host.8
	$(INSTALL) man/vcache-setup.conf.5 $(D)/usr/share/man/man5/vcache-setup.conf.5

install-guest: man
	install -D -m 0755 $(PACKAGING)/commands/vcache-guest $(D)/usr/bin/vcache-guest
	$(INSTALL) agent/etc/guest/vcache-guest.service $(D)$(UNITS)/vcache-guest.service
	$(INSTALL) agent/etc/guest/vcache-guest.default $(D)/etc/default/vcache-guest
	$(INSTALL) man/vcache-guest.8 $(D)/usr/share/man/man8/vcache-guest.8

install-guest-library:
	mkdir -p $(D)$(PYTHON)
	cp -r wheel/vcache_guest $(D)$(PYTHON)/
	find $(D)$(PYTHON) -name README.md -delete

install-guest-nginx: man
	install -D -m 0755 $(PACKAGING)/commands/vcache-guest-nginx $(D)/usr/bin/vcache-guest-nginx
	$(INSTALL) agent/etc/guest/vcache-guest-nginx.service $(D)$(UNITS)/vcache-guest-nginx.service
	$(INSTALL) man/vcache-guest-nginx.8 $(D)/usr/share/man/man8/vcache-guest-nginx.8

# The library in D, and what applications are built with in DEV. LIBDIR is a folder such as
# /usr/lib/x86_64-linux-gnu, BUILT has the files of native/libvssd/Makefile.
install-libvssd:
	$(INSTALL) $(BUILT)/libvssd.so.0 $(D)$(LIBDIR)/libvssd.so.0
	$(INSTALL) $(BUILT)/libvssd.a $(DEV)$(LIBDIR)/libvssd.a
	$(INSTALL) native/libvssd/vssd.h $(DEV)/usr/include/vssd.h
	ln -s libvssd.so.0 $(DEV)$(LIBDIR)/libvssd.so
	mkdir -p $(DEV)$(LIBDIR)/pkgconfig
	sed 's,@LIBDIR@,$(LIBDIR),; s,@VERSION@,$(VERSION),' native/libvssd/libvssd.pc.in \
		>$(DEV)$(LIBDIR)/pkgconfig/libvssd.pc

install-api:
	mkdir -p $(D)/etc/vcache
	$(INSTALL) nova_vcache/etc/vcache-api.service $(D)$(UNITS)/vcache-api.service

install-plugin: man
	mkdir -p $(D)$(PYTHON)
	cp -r wheel/nova_vcache wheel/nova_vcache-*.dist-info $(D)$(PYTHON)/
	rm -rf $(D)$(PYTHON)/nova_vcache-*.dist-info/{RECORD,licenses}
	find $(D)$(PYTHON) -name README.md -delete
	install -D -m 0755 $(PACKAGING)/commands/nova-vcache-status $(D)/usr/bin/nova-vcache-status
	$(INSTALL) -t $(D)/usr/share/man/man1 man/nova-vcache-status.1

install-cinder:
	mkdir -p $(D)$(PYTHON)
	cp -r wheel/vcache_cinder $(D)$(PYTHON)/
	find $(D)$(PYTHON) -name README.md -delete

install-doc:
	mkdir -p $(D)/usr/share/doc/$(NAME)/rst
	cp -r doc/source/*.rst doc/source/admin doc/source/reference doc/source/_static \
		$(D)/usr/share/doc/$(NAME)/rst/
