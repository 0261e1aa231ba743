#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # devstack sets what is not set here
#
# devstack sources this file with a mode and a phase: stack PHASE, unstack, clean.

# Save trace setting
_XTRACE_VCACHE=$(set +o | grep xtrace)
set +o xtrace

VCACHE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$VCACHE_DIR/devstack/lib/services"
source "$VCACHE_DIR/devstack/lib/module"
source "$VCACHE_DIR/devstack/lib/storage"

# vcache_phase MODE [PHASE] - Run a phase on this node. Each phase may run repeatedly.
function vcache_phase {
    local controller="" compute=""
    if is_service_enabled vcache-api; then
        controller=yes
    fi
    if is_service_enabled vcache-agent; then
        compute=yes
    fi
    case "$*" in
        "stack pre-install")
            if [[ -n "$compute" ]]; then
                echo_summary "Building dm-vcache"
                install_vcache_module
            fi
            ;;
        "stack install")
            echo_summary "Installing nova-vcache"
            install_vcache
            if [[ -n "$compute" ]]; then
                install_vcache_hook
            fi
            ;;
        "stack post-config")
            echo_summary "Configuring nova-vcache"
            if [[ -n "$controller" ]]; then
                configure_vcache_api
                configure_vcache_nova
                create_vcache_accounts
            fi
            if [[ -n "$compute" ]]; then
                configure_vcache_agent
                load_vcache_module
                init_vcache_storage
            fi
            if is_service_enabled vcache-host; then
                configure_vcache_host
            fi
            ;;
        "stack extra")
            echo_summary "Starting nova-vcache"
            start_vcache
            if [[ -n "$controller" && "$VCACHE_CREATE_FLAVORS" == "True" ]]; then
                create_vcache_flavors
            fi
            ;;
        "stack test-config")
            if [[ -n "$controller" ]]; then
                check_vcache
            fi
            ;;
        "unstack")
            stop_vcache
            ;;
        "clean")
            # clean.sh has called unstack.sh, so no instance runs.
            if [[ -n "$controller" ]]; then
                cleanup_vcache_api
            fi
            if [[ -n "$compute" ]]; then
                cleanup_vcache_storage
                cleanup_vcache_hook
                cleanup_vcache_module
            fi
            cleanup_vcache
            ;;
    esac
}

if is_service_enabled vcache-api vcache-agent vcache-host; then
    vcache_phase "$@"
fi

# Restore xtrace
$_XTRACE_VCACHE
