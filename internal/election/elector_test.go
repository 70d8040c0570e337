package election_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

// Times that let a test see several terms.
const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 200 * time.Millisecond
)

var quick = election.Times{LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod}

// process is an elector that runs until it is stopped or killed.
type process struct {
	*election.Elector
	identity string
	registry *prometheus.Registry
	kill     func() // without a word to the API server
	stop     func() // releases the Lease, and waits
}

func start(t *testing.T, config *rest.Config, namespace string) process {
	t.Helper()
	dead, kill := context.WithCancel(context.Background())
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &mortal{next, dead} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, client.CoordinationV1(), namespace, kill)
}

// elector returns an elector that is not run, and the context that its kill ends.
func elector(t *testing.T, leases coordinationv1.LeasesGetter, namespace string, times election.Times) (process, context.Context) {
	t.Helper()
	p := process{identity: election.Identity("compiler"), registry: prometheus.NewRegistry()}
	var err error
	p.Elector, err = election.New(election.Options{
		Program: "compiler", Leases: leases, Namespace: namespace, Name: "compiler", Identity: p.identity, Log: slog.New(slog.DiscardHandler), Metrics: p.registry,
		Times: times,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p.kill = cancel
	return p, ctx
}

// run has an elector take part until the test ends.
func run(t *testing.T, leases coordinationv1.LeasesGetter, namespace string, kill func()) process {
	t.Helper()
	p, ctx := elector(t, leases, namespace, quick)
	cancel := p.kill
	p.kill = kill
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		ended <- nil
	}
	t.Cleanup(func() { kill(); p.stop() })
	return p
}

// mortal sends nothing any more once the process is dead.
type mortal struct {
	next http.RoundTripper
	dead context.Context
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Err() != nil {
		return nil, errors.New("the process is dead")
	}
	return m.next.RoundTrip(r)
}

// patience is how long anything may take on a machine that is busy.
const patience = time.Minute

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if time.Since(begun) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-tick.C
	}
}

// awaitLeader waits until one of two leads, and returns it and the other.
func awaitLeader(t *testing.T, one, two process) (leader, follower process) {
	t.Helper()
	await(t, "one leads", func() bool { return one.Leading() || two.Leading() })
	if one.Leading() {
		return one, two
	}
	return two, one
}

// The successor of a killed leader does not lead before the leader's own term has ended.
func TestAKilledLeaderHasASuccessor(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	leader, follower := awaitLeader(t, start(t, server.Config(), namespace), start(t, server.Config(), namespace))
	during, end, ok := leader.Term(t.Context())
	defer end()
	if _, _, leads := follower.Term(t.Context()); !ok || leads {
		t.Fatalf("the leader leads: %v, the follower: %v", ok, leads)
	}
	leader.kill()
	overlap := false
	await(t, "the successor", func() bool {
		leads := follower.Leading()
		overlap = overlap || leads && leader.Leading()
		return leads
	})
	if overlap {
		t.Error("both led")
	}
	<-during.Done()
	if !errors.Is(context.Cause(during), election.ErrNotLeading) {
		t.Errorf("what was begun ended with %v", context.Cause(during))
	}
	if got := follower.Holder(); got != follower.identity && got != leader.identity {
		t.Errorf("holder %q", got)
	}
	wantGauge(t, leader, 0)
	wantGauge(t, follower, 1)
}

func wantGauge(t *testing.T, p process, want int) {
	t.Helper()
	text := "# HELP hapsnap_compiler_leader 1 while this process is the leader, else 0.\n# TYPE hapsnap_compiler_leader gauge\nhapsnap_compiler_leader " + string(rune('0'+want)) + "\n"
	if err := testutil.GatherAndCompare(p.registry, strings.NewReader(text), "hapsnap_compiler_leader"); err != nil {
		t.Error(err)
	}
}

// A leader that was stopped for longer than its term leaves the Lease to its successor when it continues.
func TestALeaderThatSleptLeavesTheLeaseToItsSuccessor(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	config := rest.CopyConfig(server.Config())
	sleep := &sleep{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { sleep.next = next; return sleep })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	slept := run(t, client.CoordinationV1(), namespace, sleep.end)
	await(t, "leads", slept.Leading)
	successor := start(t, server.Config(), namespace)
	await(t, "the other one has seen the leader", func() bool { return successor.Holder() == slept.identity })
	sleep.begin()
	await(t, "the successor", successor.Leading)
	during, end, _ := successor.Term(t.Context())
	defer end()
	sleep.end()
	await(t, "the one that slept sees its successor", func() bool { return slept.Holder() == successor.identity || slept.Leading() })
	if slept.Leading() || during.Err() != nil {
		t.Errorf("the one that slept leads: %v; the successor's term: %v", slept.Leading(), context.Cause(during))
	}
}

// sleep holds up requests while its process sleeps, whatever their deadline, since a stopped process notices no
// deadline.
type sleep struct {
	next  http.RoundTripper
	mu    sync.Mutex
	awake chan struct{} // nil: it does not sleep
}

func (s *sleep) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awake = make(chan struct{})
}

func (s *sleep) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awake != nil {
		close(s.awake)
		s.awake = nil
	}
}

func (s *sleep) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	awake := s.awake
	s.mu.Unlock()
	if awake != nil {
		<-awake
	}
	return s.next.RoundTrip(r)
}

// A leader that stops gives the Lease back.
func TestALeaderThatStopsHandsOver(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	leader, follower := awaitLeader(t, start(t, server.Config(), namespace), start(t, server.Config(), namespace))
	during, end, _ := leader.Term(t.Context())
	stopped := make(chan struct{})
	go func() { leader.stop(); close(stopped) }()
	<-during.Done()
	end()
	<-stopped
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), "compiler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder == leader.identity {
		t.Error("the Lease is not given back")
	}
	await(t, "the successor", follower.Leading)
}

// A leader that stops while its request is under way gives back what it took by it.
func TestALeaderThatStopsAsItTakesTheLease(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	config := rest.CopyConfig(server.Config())
	slow := &slowAnswer{taken: make(chan struct{}), answer: make(chan struct{})}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { slow.next = next; return slow })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p, stop := elector(t, client.CoordinationV1(), namespace, quick)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(stop) }()
	<-slow.taken
	p.kill()
	close(slow.answer)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), "compiler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the Lease is %s's", *holder)
	}
}

// If somebody deletes the Lease, so that another process takes it, the leader does not lead until the end of its term.
func TestALeaderWhoseLeaseIsDeleted(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	long := election.Times{LeaseDuration: 4 * patience, RenewDeadline: 3 * patience, RetryPeriod: retryPeriod}
	begin := func() process {
		p, stop := elector(t, client.CoordinationV1(), namespace, long)
		ended := make(chan error, 1)
		go func() { ended <- p.Run(stop) }()
		t.Cleanup(func() {
			p.kill()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return p
	}
	first := begin()
	await(t, "leads", first.Leading)
	during, end, _ := first.Term(t.Context())
	defer end()
	second := begin()
	leases := client.CoordinationV1().Leases(namespace)
	await(t, "a successor, and the first one steps down", func() bool {
		lease, err := leases.Get(t.Context(), "compiler", metav1.GetOptions{})
		if err == nil && *lease.Spec.HolderIdentity == first.identity { // at first, or because it was the quicker one
			err = leases.Delete(t.Context(), "compiler", metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return second.Leading() && !first.Leading()
	})
	<-during.Done()
	if !errors.Is(context.Cause(during), election.ErrNotLeading) {
		t.Errorf("what was begun ended with %v", context.Cause(during))
	}
}

// slowAnswer lets the first write through, and its answer come later. As with any request, an error comes in its place
// when the context ends.
type slowAnswer struct {
	next          http.RoundTripper
	once          sync.Once
	taken, answer chan struct{}
}

func (s *slowAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if r.Method == http.MethodGet {
		return answer, err
	}
	s.once.Do(func() {
		close(s.taken)
		<-s.answer
	})
	if ended := r.Context().Err(); ended != nil && err == nil {
		answer.Body.Close()
		return nil, ended
	}
	return answer, err
}

// Without an API server nobody leads. When it is back, somebody leads in the same process.
func TestALeaderStepsDownWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	namespace := server.Namespace(t)
	leader := start(t, server.Config(), namespace)
	await(t, "leads", leader.Leading)
	<-leader.Changed()
	server.Stop(t)
	gone := time.Now()
	await(t, "steps down", func() bool {
		late := time.Since(gone) > renewDeadline
		leads := leader.Leading()
		if late && leads {
			t.Errorf("leads longer than %s without the API server", renewDeadline)
		}
		return !leads
	})
	await(t, "says so", func() bool {
		select {
		case <-leader.Changed():
			return true
		default:
			return false
		}
	})
	if err := leader.Trouble(); err == nil || !strings.HasPrefix(err.Error(), "lease "+namespace+"/compiler: ") {
		t.Errorf("in trouble: %v", err)
	}
	if err := leader.Leads(); !errors.Is(err, election.ErrNotLeading) {
		t.Errorf("leads: %v", err)
	}
	server.Resume(t)
	await(t, "leads again", leader.Leading)
	await(t, "no trouble any more", func() bool { return leader.Trouble() == nil })
}

// The rules are enough, and name the one Lease.
func TestTheRulesAreEnough(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	config := permitted(t, server, namespace, election.Rules("compiler"))
	leader := start(t, config, namespace)
	await(t, "leads", leader.Leading)
	leader.stop()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), "another", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("another Lease: %v", err)
	}
}

// An account that may not write the Lease is told which flag names another one, and which command prints the role.
func TestAForbiddenLeaseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	client, err := kubernetes.NewForConfig(permitted(t, server, namespace, election.Rules("another")))
	if err != nil {
		t.Fatal(err)
	}
	said := make(lines, 1)
	e, err := election.New(election.Options{
		Program: "compiler", Leases: client.CoordinationV1(), Namespace: namespace, Name: "compiler", Identity: election.Identity("compiler"),
		Log: slog.New(slog.NewTextHandler(said, nil)), Metrics: prometheus.NewRegistry(),
		Times: quick,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	line := <-said
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"cannot read the lease", "--lease=NAMESPACE/NAME", "compiler rbac --lease=" + namespace + "/compiler"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
}

// lines takes the lines of a log while there is room.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// permitted returns a connection for a service account that has the permissions of the rules, in one namespace,
// and no others.
func permitted(t *testing.T, server *kubetest.Server, namespace string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	kubeconfig := server.Grant(t, namespace, "compiler", rules)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
