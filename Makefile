# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

LAB ?= default
SCENARIO ?= default
# Scenarios that only `make test-full` runs. With the others, `make test` takes half an hour.
SLOW_SCENARIOS ?= air_gap air_gap_redhat command containerd crio debian_driver distributions docker docker_hosts driver fabric faults kernels mig mishaps redhat ubuntu
ALL_SCENARIOS := $(patsubst molecule/%/molecule.yml,%,$(wildcard molecule/*/molecule.yml))
SCENARIOS := $(filter-out $(SLOW_SCENARIOS),$(ALL_SCENARIOS))

# scripts/bootstrap creates one for each ansible-core: the newest, 2.19, and the oldest supported.
ENVIRONMENTS := .venv .venv-2.19 .venv-2.16
# A failure on one ansible-core only is nearly always on the oldest or the newest.
TEST_ENVIRONMENTS ?= .venv .venv-2.16
# The unit tests for other versions of ansible-core: in `make test`, those that run Ansible or one of its plugins.
ANSIBLE_TESTS ?= $(addprefix tests/unit/,plugins/action plugins/callback plugins/modules playbooks roles)

# Their run counts the lines of metal_gpu, which takes a little longer.
COMMAND_TESTS := tests/unit/metal_gpu

# The checkout under the path that Python and Ansible expect. conftest.py creates the same link.
TREE := $(CURDIR)/.ansible/collections
LINK := $(TREE)/ansible_collections/metal/gpu

export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
lint changelog: export ANSIBLE_COLLECTIONS_PATH := $(TREE)
export METAL_LAB_NAME := $(LAB)
# Each run of Ansible imports hundreds of files. Their bytecode is kept in this checkout, also if the
# environment forbids Python to write it.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.ansible/bytecode

.DEFAULT_GOAL := help
.PHONY: help bootstrap environments demo test test-full lint unit sanity molecule bench hardware hardware-kit dist dist-test docs changelog command readmes returns lab-up lab-down clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

bootstrap:
	@scripts/bootstrap

environments:
	@scripts/bootstrap checks

demo: lab-up ## start a laboratory and turn its bare nodes into proven GPU nodes
	@scripts/install-collection
	@echo "== ansible-playbook metal.gpu.site"
	@ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.ansible/installed ANSIBLE_STDOUT_CALLBACK=metal.gpu.quiet \
	  ansible-playbook --inventory .lab/$(LAB)/inventory.yml metal.gpu.site
	@printf '%s\n' \
	  '== look around:   tests/lab/lab kubectl describe nodes' \
	  '                  tests/lab/lab ssh gpu-1 nvidia-smi' \
	  '   break a GPU:   tests/lab/lab fault gpu-1 gpu-lost 2' \
	  '   find it:       eval "$$(scripts/env)"; ansible-playbook metal.gpu.verify' \
	  '   fix it:        tests/lab/lab fault gpu-1 restore' \
  '                  tests/lab/lab kubectl -n kube-system rollout restart daemonset' \
	  '   run it again:  make demo       (changes nothing)' \
	  '   stop it:       make lab-down'

test: bootstrap ## run lint, unit, sanity, docs, dist-test and the quick Molecule scenarios (what .ci/run calls)
	@scripts/run-tests lint unit sanity docs dist-test $(addprefix molecule-,$(SCENARIOS))

test-full: bootstrap ## run `make test` with 20,000 mutations, every ansible-core, and every scenario
	@METAL_GPU_MUTATIONS=20000 TEST_ENVIRONMENTS="$(ENVIRONMENTS)" \
	  ANSIBLE_TESTS="tests/unit/plugins tests/unit/playbooks tests/unit/roles" \
	  scripts/run-tests lint unit sanity docs dist-test $(addprefix molecule-,$(ALL_SCENARIOS))

lint: environments $(LINK) ## check style, types, documentation, licences and changelog
	@scripts/lint

unit: bootstrap ## run the unit tests, on the newest and the oldest ansible-core; 90 % of metal_gpu must run
	@for python in $(TEST_ENVIRONMENTS); do \
	  [ -e $$python ] || continue; \
	  echo "== pytest, $$($$python/bin/ansible --version | sed -n 1p)"; \
	  [ $$python = .venv ] && tests="tests/lab tests/unit --ignore=$(COMMAND_TESTS)" || tests="$(ANSIBLE_TESTS)"; \
	  $$python/bin/python -m pytest -q $$tests || failed=1; \
	done; \
	echo "== pytest $(COMMAND_TESTS), with the lines that it runs"; \
	rm -rf .ansible/coverage; mkdir -p .ansible/coverage; \
	python -m coverage run -m pytest -q $(COMMAND_TESTS) || failed=1; \
	python -m coverage combine -q; \
	python -m coverage report || failed=1; \
	exit $${failed:-0}

sanity: environments ## run ansible-test sanity, on the newest and the oldest ansible-core
	@for python in $(TEST_ENVIRONMENTS); do \
	  [ -e $$python ] || continue; \
	  echo "== ansible-test sanity, $$($$python/bin/ansible --version | sed -n 1p)"; \
	  $$python/bin/python scripts/sanity.py; \
	done

molecule: molecule-$(SCENARIO) ## run one scenario on the installed artifact: make molecule SCENARIO=default

molecule-%: bootstrap
	@scripts/install-collection
	@echo "== molecule test --scenario-name $*"
	@ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.ansible/installed molecule test --scenario-name $*

bench: bootstrap ## measure operations, seconds and memory; write docs/benchmarks.md (15 minutes)
	@scripts/install-collection
	@tests/bench/bench $(if $(ONLY),--only $(ONLY)) $(if $(PEERS),--peers $(PEERS))

hardware: ## ask this machine's GPUs what the project believes (5 minutes); KIT=FILE adds containers
	@tests/hardware/run $(if $(KIT),--kit $(KIT))

hardware-kit: bootstrap ## build hardware-kit.tar.xz: what `make hardware` needs on a machine without network
	@PYTHONPATH=tests/hardware:tests/lab python -m metal_hardware.kit hardware-kit.tar.xz

dist: environments ## write the artifact, the wheel, their bill of materials and checksums to dist
	@python scripts/release_files.py dist

dist-test: dist ## install the built wheel with pip, pipx and uv, and run what it brings
	@python -m pytest -q tests/install

docs: ## build the documents as a site in the folder site; a broken link fails
	@scripts/bootstrap docs
	@.venv-docs/bin/python scripts/docs_site.py site

changelog: environments $(LINK) ## generate CHANGELOG.md from changelogs/fragments and the plugins
	@date=$$(sed -n "s/^ *release_date: '\(.*\)'/\1/p" changelogs/changelog.yaml | tail -n 1); \
	antsibull-changelog release --update-existing --refresh --reload-plugins --date "$$date"

command: environments $(LINK) ## generate docs/command.md from the help of metal-gpu
	@python scripts/command_page.py

readmes: environments ## generate the variables in each role's README from its argument spec
	@python scripts/role_readmes.py

returns: environments ## generate RETURN of metal.gpu.node_info from the types of an observation
	@python scripts/returns.py

lab-up: ## start a laboratory of tests/labs with bare nodes: make lab-up LAB=mixed
	@scripts/bootstrap laboratory
	@tests/lab/lab up tests/labs/$(LAB).yml

lab-down: ## stop every laboratory of this checkout
	@for lab in .lab/*/; do \
	  [ ! -d "$$lab" ] || tests/lab/lab down --name "$$(basename "$$lab")"; \
	done

clean: lab-down ## stop laboratories and the Docker engine of bootstrap; remove generated files
	@scripts/docker-engine stop
	@echo "== removing .ansible, .lab, .venv and the caches of the tools"
	@rm -rf .ansible .cache .lab .mypy_cache .pytest_cache .ruff_cache dist site $(ENVIRONMENTS) .venv-docs
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@cache=$${XDG_CACHE_HOME:-~/.cache}; \
	echo "   kept for the next run: $$cache/metal-gpu, and the laboratory's $$cache/metal-lab"

$(LINK):
	@mkdir -p $(@D)
	@ln -sfn ../../../.. $@
