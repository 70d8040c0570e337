# Every command that developing hapsnap needs. `make` alone lists them.

# haproxy is in a sbin folder, which a user's PATH may lack; so is Go's own
# folder, in a shell that read no profile.
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin

# The haproxy that tests and the demo run: a name on PATH or a path.
override HAPROXY := $(or $(HAPROXY),haproxy)
# Tests run in their package's folder, where a relative path means something else.
ifneq ($(findstring /,$(HAPROXY)),)
override HAPROXY := $(abspath $(HAPROXY))
endif
export HAPROXY

# A real Dataplane API for tests and the demo: a name on PATH or a path. Without one, or
# with none, they have a double of it.
ifneq ($(findstring /,$(DATAPLANEAPI)),)
override DATAPLANEAPI := $(abspath $(DATAPLANEAPI))
endif
export DATAPLANEAPI

# Keeps the demo running after its story.
KEEP ?=
export KEEP

# The API server, etcd, kubectl and kustomize that tests run.
export KUBEBUILDER_ASSETS := $(CURDIR)/build/kube

# Helm 4 and Helm 3, for the tests of the chart.
export HELM_ASSETS := $(CURDIR)/build/helm

# What finds in tests of the page that people cannot use it.
export AXE_CORE := $(CURDIR)/build/axe/axe.min.js

# Everything is built alike, so that it is compiled once: tests, what tests build, and what is shipped. The detector needs cgo,
# and has builds of its own.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell PATH="$(PATH)" go env GOFLAGS 2>/dev/null)) -trimpath)
export CGO_ENABLED := 0

VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)

# What computes a lot, for itself alone: the race detector would make it ten times
# slower, and has nothing to find there. Nothing here may use sync.Map or atomic.Pointer: their code is
# compiled with each user's flags, the linker takes one copy for the whole program, and with a copy without the
# detector everything that they protect looks like a race.
WITHOUT_RACES := compress/flate regexp regexp/syntax go.yaml.in/yaml/... sigs.k8s.io/yaml/... github.com/pjbgp/sha1cd/...

# With the detector, the compiler also has each conversion of an unsafe pointer checked. That takes a fifth of the
# time, nearly all of it in reflect, and there is none in hapsnap. Of two flags for one package, the last one counts.
# Programs that tests build with the detector are built with these flags as well.
export RACE_FLAGS := -gcflags=all=-d=checkptr=0 $(WITHOUT_RACES:%=-gcflags=%=-race=false)

# With the race detector each program would sleep for a second at its end.
export GORACE ?= atexit_sleep_ms=20

# The timeout is each package's: what takes five minutes on a quiet machine takes half an hour on one that does
# something else as well. Tests wait for programs half of the time: with the packages beside them, one package more than
# the usual two cores keeps these busy. `make lint` vets.
TESTFLAGS ?= -race $(RACE_FLAGS) -vet=off -timeout 60m -p $(shell nproc)

# Memory is cheaper than the time of two cores: tests, and the programs that they run, collect garbage
# less often, and keep temporary files in memory where there is plenty.
TEST_GOGC ?= 300
test conformance conformance-report cover soak: export GOGC = $(TEST_GOGC)
test conformance conformance-report cover soak: export TMPDIR := $(shell hack/tmpdir)

FUZZTIME ?= 30s
BENCHTIME ?= 1s
PACKAGES ?= ./...
SKIP ?=

HAPROXY_3_0 := build/haproxy-3.0/haproxy
GOLANGCI_LINT := build/tools/golangci-lint
ACTIONLINT := build/tools/actionlint
KUBE := build/kube/kube-apiserver build/kube/etcd build/kube/kubectl build/kube/kustomize
HELM := build/helm/helm build/helm/helm3

AXE := build/axe/axe.min.js

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  HAPROXY=PATH  another haproxy for test, cover, bench and demo'
	@echo '  DATAPLANEAPI=PATH  a real Dataplane API for test, compare-api and demo (HAProxy 2.7+)'
	@echo '  PACKAGES=...  fewer packages for test, cover, benchmarks and fuzz'

.PHONY: build
build: ## build the programs into build/bin
	go build -buildvcs=false -ldflags '-s -w -X github.com/hapsnap/hapsnap/internal/process.version=$(VERSION)' -o build/bin/ ./cmd/...

# Not through `go run`, which dies of a SIGTERM without telling the program: make
# hands the signal on, and the demo cleans up.
.PHONY: demo
demo: deps build ## show the main job as a short story; KEEP=1 leaves it running
	@go build -buildvcs=false -o build/bin/demo ./examples/demo
	@build/bin/demo

.PHONY: test
test: test-deps ## install what is missing and run every test
	@TESTFLAGS='$(TESTFLAGS)' SKIP='$(SKIP)' hack/few-authorities hack/test $(PACKAGES)

.PHONY: compare-api
compare-api: deps ## print where the double of the Dataplane API answers otherwise than DATAPLANEAPI=PATH
	go test -count=1 -v -run '^TestDoubleAnswersLikeARealAPI$$' ./pusher/dataplane

# Packages that start a haproxy: their tests read the variable, use the double of the
# Dataplane API, or run images. What others test, another haproxy does not change. The same holds for some that start one:
# the tests of the chart are about Helm but for one, those of pods and of discovery about Kubernetes, and those of
# the others named here about commands, documents, and what calls the rest.
WITH_HAPROXY = go list $$(grep -rlE --include='*.go' --exclude-dir=build --exclude-dir=tools '"HAPROXY"|/internal/testing/(dataplane|image)test"' . | xargs -n1 dirname | sort -u) | grep -vE '/(charts/(charttest|runtest)|compiler/(assert|cli|controller/controllertest|function)|docs|examples/(demo|fleet)|hack/bench|internal/(layers|testing/podtest)|pusher/(core|discovery))$$'

# What another haproxy does not change: stories about commands, stores and clusters, in which HAProxy checks a configuration
# or runs as ever; the stories of the pusher, whose instances are in memory; and tests that are about our own code, and are
# long, such as those of the memo, of hostile texts, of reviews and of pushers that are killed.
STORIES_3_0 := act|certificates|check|cluster|completion|diff|explain|fn|gateway|gitops|hapsnap|journal|kinds|migrate|mistakes|page|pin|render|rollback|status|store|test|trace|waf|fault_(compiler|disk|git|instance_away|live|manifests|most|pusher|sigterm|two|wrong)|push_(directories|promote|status|within|without_live)|compile_(bad|classes|configuration|empty|errors|multiple|run|same|secrets|status|unknown|usage)
MEMORY_3_0 := backends|change|edited|endpoints|failure|files|gate|instance|manifests|no|notices|override|own|propagation|pusher|restart|restarted|retry|rollout|routes|server|slots|state|successor|term|unsupported|update
OWN_3_0 := TestAPI(KeepsIts|TakesThe)|TestBackendsAloneAreAsTheWhole|TestCoreRuleSet|TestCrowdedNamespace|TestDifferingParts|TestFailureAPIServerGone|TestFailureKilled|TestInjection|TestJudge|TestManyInstancesHang|TestManyReviews|TestMemoNeverShows|TestPublishedWhatever|TestReviews|TestScopedReviews|TestSnippetWritesItsLinesOnly|TestStepsAreBounded
SKIP_3_0 := TestStories/^($(STORIES_3_0)|($(MEMORY_3_0))_)|^($(OWN_3_0))

# Without the race detector, which has seen the same code by then.
.PHONY: test-3.0
test-3.0: haproxy-3.0 ## run the tests that start it with HAProxy 3.0
	@$(MAKE) --no-print-directory test HAPROXY=$(HAPROXY_3_0) TESTFLAGS='$(filter-out -race -gcflags=%,$(TESTFLAGS))' SKIP='$(SKIP_3_0)' PACKAGES="$$(go list $(PACKAGES) | grep -xF "$$($(WITH_HAPROXY))" | tr '\n' ' ')"

TEST ?=

# Its module is one of its own, for what it needs.
CONFORMANCE = cd tools/conformance && ../../hack/few-authorities go test -count=1 -vet=off -timeout 60m . -args

.PHONY: conformance
conformance: test-deps ## run the official suite of the Gateway API; TEST=NAME for one test of it
	$(CONFORMANCE) -only=$(TEST)

.PHONY: conformance-report
conformance-report: test-deps ## write the reports of the official suite into docs/conformance
	$(CONFORMANCE) -update -of=$(VERSION)

# Tests of this name compare a generated file with what it is made of. The chart's are made of the others.
FRESH := IsFresh$$
GENERATED = $$(grep -rlE --include='*_test.go' --exclude-dir=build --exclude-dir=tools '^func Test[A-Za-z]*IsFresh\(' . | xargs -n1 dirname | sort -ru)

.PHONY: generate
generate: ## write schemas, references and other generated files anew
	go test -count=1 -p 1 -run '$(FRESH)' $(GENERATED) -update

.PHONY: fresh
fresh: ## fail when a generated file is stale, as `make test` does later
	go test -count=1 -run '$(FRESH)' $(GENERATED)

# The suite of the Gateway API mostly waits, so that other tests run beside it.
.PHONY: check
check: format lint tidy build ## everything that CI checks
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-3.0 conformance

.PHONY: format
format: ## fail for files that gofmt would change
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted; run gofmt -w:"; echo "$$files"; exit 1; } >&2

.PHONY: lint
lint: $(GOLANGCI_LINT) ## golangci-lint with go vet and the layer rules, and actionlint
	$(GOLANGCI_LINT) run ./...
	cd tools/conformance && ../../$(GOLANGCI_LINT) run .
	@$(MAKE) --no-print-directory workflows

# Where its module cannot be had, nothing else depends on it.
.PHONY: workflows
workflows: ## actionlint, where it can be had
	@if $(MAKE) --no-print-directory $(ACTIONLINT); \
		then $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yaml examples/ci/github.yaml; \
		else echo "actionlint could not be built: workflows are not checked" >&2; fi

.PHONY: tidy
tidy: ## fail when go.mod or go.sum is not tidy
	go mod tidy -diff
	cd tools/conformance && go mod tidy -diff

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@hack/fuzz $(FUZZTIME) $(PACKAGES)

DURATION ?= 5m
SEED ?=

.PHONY: soak
soak: test-deps ## random changes and faults under load for DURATION (5m), again with SEED
	DURATION=$(DURATION) SEED=$(SEED) RACE_PROGRAMS=$(findstring -race,$(TESTFLAGS)) hack/few-authorities go test -count=1 -v -timeout 24h -run '^TestSoak$$' ./testscripts

# All sizes take about an hour. LOAD says for the page what else the machine does meanwhile.
SIZES ?=
ROWS ?=
LOAD ?=

.PHONY: bench
bench: deps $(KUBE) ## print hapsnap's times beside their limits; without SIZES=100,1000 all sizes, written to docs
	@go build -o build/bin/bench ./hack/bench
	@build/bin/bench -load '$(LOAD)' -rows '$(ROWS)' $(if $(SIZES),-sizes $(SIZES),-sizes 100,1000,10000,50000,100000 -write docs)

.PHONY: benchmarks
benchmarks: deps ## run the benchmarks of packages, each for BENCHTIME (1s)
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PACKAGES)

.PHONY: cover
cover: test-deps ## run the tests and show which code they reach
	@mkdir -p build
	CGO_ENABLED=$(if $(findstring -race,$(TESTFLAGS)),1,0) hack/few-authorities go test -count=1 $(TESTFLAGS) -covermode atomic -coverpkg ./... -coverprofile build/cover.out $(PACKAGES)
	go tool cover -html build/cover.out -o build/cover.html
	@go tool cover -func build/cover.out | tail -n 1
	@echo 'by line: build/cover.html'

.PHONY: haproxy-3.0
haproxy-3.0: ## build the haproxy of Debian trixie's release into build/haproxy-3.0
	@hack/haproxy-3.0 build/haproxy-3.0

.PHONY: deps
deps: ## install what the programs and the demo need and the machine lacks
	@hack/apt-install $(filter haproxy,$(HAPROXY)) git
	@command -v $(HAPROXY) >/dev/null || { echo 'HAPROXY=$(HAPROXY): not found' >&2; exit 1; }

.PHONY: kube
kube: $(KUBE) ## build Kubernetes for tests into build/kube, in minutes

.PHONY: helm
helm: $(HELM) ## build Helm for tests into build/helm, in minutes

.PHONY: browser
browser: $(AXE) ## install the Chromium of tests, and axe-core into build/axe
	@hack/apt-install chromium

.PHONY: pictures
pictures: deps browser ## draw the pictures of the page in docs anew
	go test -count=1 -run '^TestPictures$$' ./pusher/ui/uitest -update

# The race detector needs a C compiler.
.PHONY: test-deps
test-deps: deps browser $(KUBE) $(HELM)
	@$(if $(findstring -race,$(TESTFLAGS)),hack/apt-install gcc libc6-dev)
	@hack/apt-install openssh-client gpg gpg-agent prometheus iproute2

# What a release has for people: an archive for each system, their checksums, and the
# manifest of krew.
.PHONY: archives
archives: ## build archives of hapsnap for all systems into build/archives
	@hack/archives build/archives $(VERSION)

# Those who have Docker; tests need none.
.PHONY: images
images: ## build the images with Docker
	@for target in compiler pusher haproxy waf hapsnap; do \
		docker build --target $$target --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) --tag hapsnap/$$target:$(VERSION) . || exit; \
	done

KIND_CLUSTER ?= hapsnap-demo

.PHONY: kind-demo
kind-demo: images ## install the chart in a cluster of kind: needs Docker, kind, kubectl and helm
	kind get clusters | grep -qx $(KIND_CLUSTER) || kind create cluster --name $(KIND_CLUSTER)
	kind load docker-image --name $(KIND_CLUSTER) hapsnap/compiler:$(VERSION) hapsnap/pusher:$(VERSION) hapsnap/haproxy:$(VERSION) hapsnap/waf:$(VERSION)
	helm upgrade --install hapsnap charts/hapsnap --kube-context kind-$(KIND_CLUSTER) --namespace hapsnap --create-namespace --values examples/kind/values.yaml \
		--set compiler.image.tag=$(VERSION),pusher.image.tag=$(VERSION),haproxy.image.tag=$(VERSION),haproxy.bootstrap.image.tag=$(VERSION) --wait
	kubectl --context kind-$(KIND_CLUSTER) apply -f examples/kind/web.yaml

.PHONY: clean
clean: ## remove build/
	rm -rf build

# Built once; again when tools/ names another version.
$(GOLANGCI_LINT): tools/go.mod tools/go.sum
	cd tools && go build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(ACTIONLINT): tools/actionlint/go.mod tools/actionlint/go.sum
	cd tools/actionlint && go build -o ../../$@ github.com/rhysd/actionlint/cmd/actionlint
	@touch $@

$(AXE): hack/axe-core
	hack/axe-core $(@D)

# Kubernetes for tests. Built once, in minutes; again when tools/kubernetes names
# other versions.
KUBE_VERSION = $(shell sed -n 's,.*k8s.io/kubernetes v\([0-9.]*\).*,\1,p' tools/kubernetes/go.mod)
KUBE_BUILD = cd tools/kubernetes && go build -tags grpcnotrace -o ../../$@

build/kube/kube-apiserver build/kube/kubectl: build/kube/%: tools/kubernetes/go.mod tools/kubernetes/go.sum
	$(KUBE_BUILD) -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=v$(KUBE_VERSION)' k8s.io/kubernetes/cmd/$*
	@touch $@

build/kube/etcd: tools/kubernetes/go.mod tools/kubernetes/go.sum
	$(KUBE_BUILD) -ldflags '-s -w' go.etcd.io/etcd/server/v3
	@touch $@

# kubectl has kustomize inside, but runs no function that is a program.
build/kube/kustomize: tools/kubernetes/go.mod tools/kubernetes/go.sum
	$(KUBE_BUILD) -ldflags '-s -w' sigs.k8s.io/kustomize/kustomize/v5
	@touch $@

# Helm 3 asks what it was built with for the version that it renders for.
HELM_MINOR = $(word 2,$(subst ., ,$(KUBE_VERSION)))
HELM_BUILD = cd tools/helm && go build -o ../../$@

build/helm/helm: tools/helm/go.mod tools/helm/go.sum
	$(HELM_BUILD) -ldflags '-s -w' helm.sh/helm/v4/cmd/helm
	@touch $@

build/helm/helm3: tools/helm/go.mod tools/helm/go.sum tools/kubernetes/go.mod
	$(HELM_BUILD) -ldflags '-s -w $(foreach p,chartutil lint/rules,-X helm.sh/helm/v3/pkg/$(p).k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$(p).k8sVersionMinor=$(HELM_MINOR))' helm.sh/helm/v3/cmd/helm
	@touch $@
