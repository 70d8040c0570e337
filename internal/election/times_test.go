package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/hapsnap/hapsnap/internal/election"
)

// register stands in for an API server that has one Lease, and answers at once.
type register struct {
	mu      sync.Mutex
	version byte
	lease   *coordination.Lease
}

// desk is the register as one process reaches it, until the process is dead.
type desk struct {
	coordinationv1.LeaseInterface
	*register
	dead context.Context
}

func (d desk) Leases(string) coordinationv1.LeaseInterface { return d }

var errDead = errors.New("the process is dead")

func (d desk) Get(context.Context, string, metav1.GetOptions) (*coordination.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.dead.Err() != nil:
		return nil, errDead
	case d.lease == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "compiler")
	}
	return d.lease.DeepCopy(), nil
}

func (d desk) Create(_ context.Context, next *coordination.Lease, _ metav1.CreateOptions) (*coordination.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.dead.Err() != nil:
		return nil, errDead
	case d.lease != nil:
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, "compiler")
	}
	return d.put(next), nil
}

func (d desk) Update(_ context.Context, next *coordination.Lease, _ metav1.UpdateOptions) (*coordination.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.dead.Err() != nil:
		return nil, errDead
	case d.lease == nil || d.lease.ResourceVersion != next.ResourceVersion:
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "compiler", errors.New("changed"))
	}
	return d.put(next), nil
}

func (d desk) put(next *coordination.Lease) *coordination.Lease {
	d.version++
	d.lease = next.DeepCopy()
	d.lease.ResourceVersion = string('a' + rune(d.version))
	return d.lease.DeepCopy()
}

// elected returns two processes, of which the first leads.
func elected(t *testing.T) (leader, follower process) {
	t.Helper()
	all := &register{}
	join := func() process {
		dead, kill := context.WithCancel(t.Context())
		return run(t, desk{register: all, dead: dead}, "edge", kill)
	}
	leader = join()
	await(t, "leads", leader.Leading)
	follower = join()
	await(t, "follows", func() bool { return follower.Holder() == leader.identity })
	return leader, follower
}

// If a leader is killed, its term is over before the successor leads. The successor leads within the lease
// duration and a few retries.
func TestTimeOfSuccession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leader, follower := elected(t)
		during, end, _ := leader.Term(t.Context())
		defer end()
		leader.kill()
		killed := time.Now()
		await(t, "the successor", func() bool {
			leads := follower.Leading()
			synctest.Wait() // everybody who waits for this time has learned of it
			if leads && (leader.Leading() || during.Err() == nil) {
				t.Errorf("after %s both lead", time.Since(killed))
			}
			return leads
		})
		if took := time.Since(killed); took < renewDeadline || took > leaseDuration+4*retryPeriod {
			t.Errorf("the successor leads after %s", took)
		}
		if !errors.Is(context.Cause(during), election.ErrNotLeading) {
			t.Errorf("what was begun ended with %v", context.Cause(during))
		}
	})
}

// A leader that stops waits for the work that it had begun, and nobody leads meanwhile. Then another process
// leads, well before the lease duration is over.
func TestTimeOfHandingOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leader, follower := elected(t)
		during, end, _ := leader.Term(t.Context())
		stopped := make(chan struct{})
		go func() { leader.stop(); close(stopped) }()
		<-during.Done()
		<-time.After(renewDeadline / 4)
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped while something that only the leader may do was going on")
		default:
		}
		if leader.Leading() || follower.Leading() {
			t.Error("somebody leads while the last leader finishes")
		}
		end()
		<-stopped
		released := time.Now()
		await(t, "the successor", follower.Leading)
		// A released Lease lasts for a second.
		if took := time.Since(released); took > time.Second+4*retryPeriod {
			t.Errorf("the successor leads after %s", took)
		}
	})
}

// Without a register nobody leads any longer than the renew deadline.
func TestTimeOfSteppingDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leader, _ := elected(t)
		leader.kill()
		killed := time.Now()
		await(t, "steps down", func() bool { return !leader.Leading() })
		if took := time.Since(killed); took > renewDeadline+10*time.Millisecond {
			t.Errorf("led for %s", took)
		}
	})
}
