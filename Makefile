# People and continuous integration call the same targets; `make help` lists
# them. Everything that is needed besides Go is fetched by Go.

GO       ?= go
# A number of inputs and no time: when a time is up, Go 1.26 sometimes reports the end
# of the run as a failure, golang/go#75804.
FUZZTIME ?= 50000x
SOAKTIME ?= 60s
# Jobs that are due in one second.
CROWD    ?= 10000
# Of virtual time, in internal/check/sim: with models of nodes, with whole nodes, and with wrong clocks.
HOURS       ?= 1000
NODE_HOURS  ?= 100
CLOCK_HOURS ?= 20
SEED        ?= random
RACE        ?=
# Of make race: 1 for all that make test-long looks at.
WHOLE      ?=
# Sequences of random steps of the store suite, and worlds of internal/node.
SEEDS    ?= 300
SCREENSHOTS ?= screenshots
WORLDS   ?= 20
# Of make cluster: postgres, mariadb, etcd, redis, or several with commas.
DATABASE ?= postgres,mariadb,etcd,redis
# Of make mutations: a pattern of invariants and faults. All by default.
ONLY     ?=
# Flows of ten steps that run while its nodes are killed and restarted.
FLOWS    ?= 200
# Of make cluster: the random faults of a campaign on each database.
FAULTS   ?= 8
BEATS    ?= 16
# Versions of the module golang.org/x/vulndb, the known vulnerabilities of Go: make lint takes one that does
# not change, so that a change is judged by what it does.
VULNDB        ?= latest
VULNDB_PINNED  = v0.0.0-20261105234957-e22db6528018
# Of make versions; empty for all: test/servers/versions.sh says which there are.
VERSIONS ?=
# Of make torture: the systems, how long each of them is broken, and where the report is written.
SYSTEMS  ?= belfry-sqlite,robfig
TORTURE  ?= 5m
REPORT   ?= torture-report
# Of make soak with HOURS: what is broken, and how much longer than some seconds it is from one fault to the next.
SOAKED   ?= belfry-postgres
CALM     ?= 5m
ARGS     ?= next '30 2 * * 1-5' --tz Europe/Berlin

# bench/, integrations/prometheus/, packaging/, test/kubernetes/, test/openapi/, test/signin/, test/telemetry/, test/xxl/ and torture/ are modules of their own, so that the libraries that they
# compare, pack or check with never become Belfry's dependencies.
MODULES := . $(patsubst %/go.mod,%,$(wildcard bench/go.mod bench/etcdcron/go.mod integrations/prometheus/go.mod packaging/go.mod test/kubernetes/go.mod test/openapi/go.mod test/signin/go.mod test/telemetry/go.mod test/xxl/go.mod torture/go.mod))
GOFMT    = "$$($(GO) env GOROOT)/bin/gofmt"
TOOL     = $(GO) tool -modfile="$(CURDIR)/tools/go.mod"

# Flags of go test: make test wants events, and continuous integration a random order.
JSON    ?=
SHUFFLE ?=
# A busy machine is slower and not wrong; it may take hours instead of go test's ten minutes.
# make lint vets all packages.
FLAGS   = -vet=off -timeout 2h $(JSON) $(SHUFFLE)
GO_TEST = $(GO) test $(FLAGS)

# One build of everything: the programs that tests start are built as releases are. Any other
# setting compiles all packages again.
export CGO_ENABLED ?= 0
export GOFLAGS     ?= -trimpath

# What tests with the tag servers start is installed where it is missing, or with DEPS=no left out:
# this machine then stays as it is.
DEPS    ?= yes
INSTALL  = $(if $(filter no,$(DEPS)),:,test/servers/install.sh)
LACKS    = $(if $(filter no,$(DEPS)),$(shell test/servers/install.sh missing))
SERVERS  = $(if $(LACKS),,-tags servers)

# The packages whose tests wait more than they work. They run beside all others.
WAITING = test/(cluster|conformance|e2e|programs|web)
WORKING = $$($(GO) list ./... | grep -vE "/($(WAITING))$$" | $(LONG_FIRST))

# The stores on servers, which take longest, do not begin last. Backwards, the others end with
# package cron, whose tests use all processors.
LONG_FIRST = sed -E 's,.*/(store/(postgres|mysql|etcd|redis|sqlite|internal/replica)|internal/cli|executor/container)$$,1 &,; t; s,^,0 ,' | sort -k1,1nr -k2,2r | cut -d ' ' -f 2

# The race detector is of no use in SQLite, which was translated from C and has memory
# of its own, and makes it eight times as slow. So it is left out of it.
DETECTOR = -race -gcflags=modernc.org/...=-race=false
# It is not written in Go.
CGO      = $(if $(RACE),CGO_ENABLED=1)

# Packages with bubbles of fake time have one processor under the race detector: when
# two of them run timers of one bubble at once, the runtime gives both the same thread
# of the detector, which then ends the program, golang/go#78156. Packages still run side
# by side.
TESTS_IMPORT = $(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./...

# IN_TESTS looks for something in the tests of a module: to ask the tests themselves, all
# of them would have to be linked.
IN_TESTS = grep -rE --include=*_test.go --exclude-dir=bench --exclude-dir=openapi

# each runs a command line in every module, or in those of a list, and shows it. A failure does
# not keep it from the other modules.
each = failed=; for m in $(or $(2),$(MODULES)); do cd "$(CURDIR)/$$m"; echo '$(1)' "($$m)"; $(1) || failed=1; done; [ -z "$$failed" ]

# beside makes two targets at the same time, or as many as it is called with, where the one
# leaves a processor idle that the other can use.
beside = $(MAKE) --no-print-directory -j$(or $(1),2) $(if $(filter output-sync,$(.FEATURES)),-Otarget)

# The folders of packages that no program contains.
SCAFFOLDING = /^(bench|belfrytest|internal\/check|internal\/server\/signin\/provider|packaging|store\/storetest|test|tools|torture|cron\/internal)\//

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

.DEFAULT_GOAL := help
.PHONY: help run build release test test-working test-waiting test-modules test-web screenshots test-long e2e servers versions cluster crash crash-nodes crash-programs check lint vulnerabilities race race-bubbles race-others fuzz sim sim-core sim-nodes sim-clocks mutations seeds soak bench torture lines fmt tidy

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## run belfry; other arguments: make run ARGS="next '@daily' -n 3"
	@$(GO) run ./cmd/belfry $(ARGS)

build: ## build ./belfry, one static file
	CGO_ENABLED=0 $(GO) build -trimpath -o belfry ./cmd/belfry

release: ## build the release VERSION (1.2.3) into dist: programs, packages, images, checksums; KEY= signs these with a key of minisign
	$(GO) -C packaging run . -version "$(VERSION)" -dir "$(CURDIR)/dist"$(if $(KEY), -key "$(abspath $(KEY))")

test: ## run all tests, on database servers too; 12 to 27 minutes on two cores. As root on Debian it says what is missing and installs it; DEPS=no installs nothing and leaves those tests out
	@echo 'Running all tests. They start database servers of their own in temporary directories.'
	@echo 'This takes 12 to 27 minutes on two cores, and longer on a busy machine.'
	@$(if $(LACKS),$(LEFT_OUT),:)
	@$(INSTALL)
	@$(GO) run ./test/report $(foreach lane,working waiting modules,$(MAKE) --no-print-directory -k JSON=-json test-$(lane) --)

# Names the tests that are left out, since the machine lacks what they start.
LEFT_OUT = echo 'DEPS=no: nothing is installed. Missing: $(LACKS).'; \
	echo 'Left out are the tests with the build tag servers, in these packages:'; \
	grep -rl --include=*_test.go '^//go:build servers' . | sed 's,/[^/]*$$,,; s,^,  ,' | sort -u

test-working:
	$(GO_TEST) $(SERVERS) $(WORKING)

test-waiting: e2e test-web crash

test-modules:
	@$(call each,$(GO_TEST) $(SERVERS) ./...,$(filter-out .,$(MODULES)))

test-web: ## run only the tests of the web UI in a browser; installs Debian's Chromium if it may
	@$(INSTALL)
	$(GO_TEST) $(SERVERS) ./test/web

screenshots: ## write a picture of each page of the web UI into the directory SCREENSHOTS (screenshots)
	@$(INSTALL)
	SCREENSHOTS="$(CURDIR)/$(SCREENSHOTS)" $(GO_TEST) -count=1 $(SERVERS) -run '^TestScreenshots$$' ./test/web

e2e:
	$(GO_TEST) $(SERVERS) ./test/e2e ./test/conformance

servers: ## run only the tests of the stores and tables on database servers; installs Debian's if it may
	@$(INSTALL)
	$(GO_TEST) $(SERVERS) ./test/servers ./test/tutorial ./store/... ./history/... ./internal/cli/crontab ./internal/cli/storecopy ./internal/cli/xxltables

versions: ## run the suites of the stores on VERSIONS of their servers (PostgreSQL 13 to 18, etcd 3.5 to 3.7), which it fetches into /var/tmp: ten minutes each
	@$(INSTALL)
	test/servers/versions.sh $(VERSIONS)

cluster: ## kill, freeze and cut off nodes that share a database server: DATABASE (postgres,mariadb,etcd,redis)
	@$(INSTALL)
	BELFRY_CLOCKS=whole BELFRY_DATABASE=$(DATABASE) BELFRY_FLOWS=$(FLOWS) BELFRY_FAULTS=$(FAULTS) BELFRY_BEATS=$(BEATS) $(GO_TEST) -count=1 -v $(SERVERS) ./test/cluster

crash: crash-nodes crash-programs ## the shortest part of make cluster, and Go programs that are restarted: two minutes

crash-nodes:
	@$(INSTALL)
	$(GO_TEST) -parallel 5 -count=1 -v $(SERVERS) -run '^Test(NodesComeAndGo|FlowsEnd)' ./test/cluster

crash-programs:
	@$(INSTALL)
	$(GO_TEST) -count=1 -v $(SERVERS) ./test/programs

check: lint ## before each commit: lint and the short tests, under a minute
	$(GO) test -short ./...

# golangci-lint vets what it looks at, with the tag. The packages of Kubernetes and Prometheus take it longer
# than all others: their tests are vetted alone. Tests must build without the tag too: make race has none.
lint: ## format, vet, golangci-lint and known vulnerabilities; changes nothing
	@echo 'gofmt -l .'; wrong=$$($(GOFMT) -l .); if [ -n "$$wrong" ]; then \
		echo "not formatted, make fmt mends it:"; echo "$$wrong"; exit 1; fi
	$(GO) vet $$(grep -rl --include=*_test.go '^//go:build servers' . | sed -E 's,/[^/]*$$,,' | sort -u | while read -r dir; do $(GO) list "$$dir" 2>/dev/null || true; done)
	@$(call each,$(GO) vet -tags servers ./...,test/kubernetes)
	@$(call each,$(TOOL) golangci-lint run ./...,$(filter-out test/kubernetes,$(MODULES)))
	$(GO) run ./test/vulnerable -database $(VULNDB_PINNED)

vulnerabilities: ## look for known vulnerabilities in the program, also of the Go that builds it; the database is VULNDB (latest), a module
	$(GO) run ./test/vulnerable -std -database $(VULNDB)

race: ## run the tests in random order under the race detector (needs a C compiler)
	@$(beside) race-bubbles race-others

# Random steps of one caller look for no races, nor do the walks through the API and the commands, which make
# thousands of requests one by one, and the inputs of fuzz targets. WHOLE=1 makes all of it.
COMMANDS = ^(Fuzz|Test(EachCommandE(xits|nds)|EachFormOfEachOutput|PagesRunOn|ImportsRunAs|CommandsInDocuments|DocumentsShow))
WALKS = ^(Fuzz|Test(Parameters|Bodies)ThatTheDescription|TestEachRouteAdmits|TestMalformedBodies)
RACED = STORETEST_WHOLE=$(WHOLE) STORETEST_SEQUENCES=$(if $(WHOLE),,1) CGO_ENABLED=1 $(GO) test -vet=off $(DETECTOR) -shuffle=on -timeout 2h

# The worlds of internal/check/sim are for make sim, which has RACE=-race.
WORLDS_OF_SIM = ^(TestCore.*|TestNodes|TestClocks|TestATraceHasEachKindOfStep|TestAStepOfOneClockMovesNoRun|TestTheSameSeedIsTheSameHistory)$$
race-bubbles:
	$(RACED) -cpu 1 $(if $(WHOLE),,-skip '$(WALKS)') ./internal/server/httpapi
	$(RACED) -cpu 1 -skip '$(WORLDS_OF_SIM)' $$($(TESTS_IMPORT) | awk '/testing\/synctest/ && $$1 !~ /internal\/server\/httpapi$$/ {print $$1}')

# Of packages, those that start goroutines, or in whose tests others do.
SHARING = while read -r dir pkg; do if grep -qE '^[^/]*\bgo (func\(|[a-zA-Z_.]+\()|\.Go\(|AfterFunc\(|\.Parallel\(|storetest\.|"net(/http)?"$$' "$$dir"/*.go; then echo "$$pkg"; fi; done

# More tests at once than there are processors, since those of internal/cli wait for servers.
# Package cron and test/, which tests programs from outside, are left out, and internal/cli, whose
# commands are single threads that wait for servers of other packages, unless WHOLE is set.
race-others:
	$(RACED) -parallel 4 $(if $(WHOLE),,-skip '$(COMMANDS)') $$($(GO) list -f '{{.Dir}} {{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | awk '!/testing\/synctest/ && $$2 !~ /\/belfry\/(test\/.*|cron$(if $(WHOLE),,|internal\/cli))$$/ && !/ \[\] \[\]$$/ {print $$1, $$2}' | $(SHARING) | $(LONG_FIRST))

# Two targets at once: one is linked while another runs.
fuzz: ## run each fuzz target with FUZZTIME inputs (50000x), or for a time
	@targets=$$($(IN_TESTS) -o '^func Fuzz[A-Za-z0-9]+' . | sed -E 's|/[^/]*:func | |' | sort); \
	if [ -z "$$targets" ]; then echo 'no fuzz target was found'; exit 1; fi; \
	one() { \
		said=$$($(GO) test -vet=off -run '^$$' -fuzz "^$$2\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$1" 2>&1) && failed= || failed=1; \
		printf '%s\n' "$(GO) test -fuzz $$2 -fuzztime $(FUZZTIME) $$1" "$$said"; [ -z "$$failed" ]; \
	}; export -f one; \
	xargs -P 2 -n 2 bash -c 'one "$$@"' one <<<"$$targets"

sim: ## a cluster in bad weather for HOURS (1000), NODE_HOURS (100) and, with wrong clocks, CLOCK_HOURS (20) of virtual time; RACE=-race; SEED= for the same each time
	@$(if $(RACE),$(beside),$(MAKE) --no-print-directory) sim-core sim-nodes sim-clocks

sim-core:
	$(CGO) BELFRY_SEED=$(SEED) BELFRY_SIM_CORE=$(HOURS) $(GO) test $(RACE) -count=1 -v -timeout 0 -run '^TestCore$$' ./internal/check/sim

# With the race detector these two have one processor, see above, and leave the other one idle.
sim-nodes:
	$(CGO) BELFRY_SEED=$(SEED) BELFRY_SIM_NODES=$(NODE_HOURS) $(GO) test $(RACE) -cpu '$(if $(RACE),1)' -count=1 -v -timeout 0 -run '^TestNodes$$' ./internal/check/sim

sim-clocks:
	$(CGO) BELFRY_SEED=$(SEED) BELFRY_SIM_CLOCKS=$(CLOCK_HOURS) $(GO) test $(RACE) -cpu '$(if $(RACE),1)' -count=1 -v -timeout 0 -run '^TestClocks$$' ./internal/check/sim

mutations: ## break the invariants on purpose, one fault at a time: the named test must fail; ONLY=overlap for some
	$(GO) run ./test/mutations '$(ONLY)'

seeds: ## other random steps than the tests take: SEEDS (300) for a store, WORLDS (20) of a node
	STORETEST_SEED=random STORETEST_SEQUENCES=$(SEEDS) $(GO) test -count=1 -timeout 0 -run '^TestStore$$/^the_same' ./store/sqlite
	BELFRY_WORLDS=$(WORLDS) $(GO) test -count=1 -timeout 0 -run '^TestInvariantsHoldInAnyWeather$$' ./internal/node

soak: ## kill a server with the race detector under random traffic for SOAKTIME (60s), and run CROWD (10000) jobs that are due at once, if it is not empty; HOURS=24 breaks SOAKED (belfry-postgres) every CALM (5m) for so long instead, and reports lateness, memory and files by hour in soak-report/
ifeq ($(origin HOURS),command line)
	@$(MAKE) --no-print-directory torture TORTURE=$(HOURS)h SYSTEMS=$(SOAKED) REPORT=soak-report TORTURE_FLAGS='-calm $(CALM)'
else
	BELFRY_BUILD='$(DETECTOR)' BELFRY_SOAK=$(SOAKTIME) $(GO) test -vet=off -count=1 -v -tags servers -run ^TestSoak ./test/e2e
	$(if $(CROWD),BELFRY_CROWD=$(CROWD) $(GO) test -vet=off -count=1 -v -tags servers -run ^TestACrowd ./test/e2e)
endif

torture: ## break Belfry and other schedulers with the same faults: SYSTEMS, each for TORTURE (5m), into the folder REPORT (torture-report); SEED=
	@$(INSTALL)
	$(GO) build -o "$(CURDIR)/$(REPORT)/bin/belfry" ./cmd/belfry
	$(GO) -C torture run . -belfry "$(CURDIR)/$(REPORT)/bin/belfry" -out "$(CURDIR)/$(REPORT)" -for $(TORTURE) -seed $(if $(filter random,$(SEED)),1,$(SEED)) -systems $(SYSTEMS) $(TORTURE_FLAGS)

test-long: ## all that can be made longer, for some hours
	GOOS=darwin $(GO) vet ./... # minutes where nothing of it was compiled before
	GOOS=freebsd $(GO) vet ./...
	$(MAKE) cluster DATABASE=postgres FLOWS=2000 FAULTS=180 BEATS=64
	$(MAKE) cluster DATABASE=mariadb FLOWS=2000 FAULTS=180 BEATS=64
	$(MAKE) cluster DATABASE=etcd FLOWS=2000 FAULTS=180 BEATS=64
	$(MAKE) cluster DATABASE=redis FLOWS=2000 FAULTS=180 BEATS=64
	$(GO) -C test/kubernetes test -timeout 2h -count=1 -v -tags control -run 'OnARealControlPlane$$' . # builds Kubernetes, ten minutes
	$(GO) -C test/telemetry test -timeout 1h -count=1 -v -tags long . # builds the Collector
	BELFRY_XXL=10000 BELFRY_DATABASE=postgres,mariadb,etcd,redis $(GO) -C test/xxl test -timeout 3h -count=1 -v -tags servers -run '^TestThreeNodes$$' .
	BELFRY_ROLLING=2m $(GO_TEST) -count=1 -v -tags servers -run '^TestNoTickIsLost' ./test/programs
	$(MAKE) sim HOURS=10000 NODE_HOURS=1000 CLOCK_HOURS=200
	BELFRY_CONTAINERS=10m $(GO_TEST) -count=1 -v -tags servers -run '^TestContainersRunThroughCrashes' ./test/e2e
	BELFRY_MODEL=large $(GO_TEST) -timeout 3h -count=1 -v -tags servers ./internal/check/model
	CGO_ENABLED=1 $(MAKE) sim HOURS=200 NODE_HOURS=50 CLOCK_HOURS=5 RACE=-race
	$(MAKE) mutations
	$(MAKE) seeds SEEDS=3000 WORLDS=200
	BELFRY_WALKS=whole $(GO_TEST) -count=1 -run '$(WALKS)' ./internal/server/httpapi
	BELFRY_CONFORMANCE=whole $(GO_TEST) -count=1 -tags servers ./test/conformance
	BELFRY_WEB=whole $(GO_TEST) -count=1 -tags servers -run '^TestEachPage' ./test/web
	STORETEST_WHOLE=1 STORETEST_SEED=random STORETEST_SEQUENCES=30 $(GO_TEST) -count=1 -tags servers ./store/... ./history/...
	BELFRY_SCENARIOS='^(postgres|mariadb-nodes|leave|kill|millions)' $(GO) -C bench test $(FLAGS) -tags servers -run '^TestEachScenario' ./nodebench
	$(MAKE) torture
	$(MAKE) versions
	$(MAKE) race WHOLE=1
	$(MAKE) soak SOAKTIME=30m
	$(MAKE) fuzz FUZZTIME=1000000x

bench: ## run each benchmark once, with little, so that none can rot, and print a table of ratios beside the recorded ones
	@$(call each,dirs=$$({ $(IN_TESTS) -l "^func Benchmark" . || true; } | xargs -r -n 1 dirname | sort -u); [ -z "$$dirs" ] || $(GO) test -vet=off -short -run ^# -bench . -benchtime 1x $$dirs)
	@$(GO) -C bench run ./cmd/table

lines: ## count the lines of code, without empty lines and comments: what programs have inside, and what tests them
	@git ls-files '*.go' | xargs awk '/^[ \t]*$$/ || /^[ \t]*\/\// {next} \
		{n[FILENAME ~ /_test\.go$$/ ? "test files" : FILENAME ~ $(SCAFFOLDING) ? "test scaffolding" : "product"]++} \
		END {for (k in n) printf "%-17s %7d\n", k, n[k]}' | sort

fmt: ## format the Go files
	$(GOFMT) -w .

tidy: ## bring the module files in order
	@$(call each,$(GO) mod tidy)
