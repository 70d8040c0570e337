package cluster

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// away is an API server that is gone.
type away struct{ corev1.SecretInterface }

func (a away) Secrets(string) corev1.SecretInterface { return a }

func (away) List(context.Context, metav1.ListOptions) (*v1.SecretList, error) {
	return nil, syscall.ECONNREFUSED
}

func (away) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, syscall.ECONNREFUSED
}

// While the API server is gone, attempts become rarer. Run ends without waiting for the next attempt.
func TestRunEndsBetweenTwoTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := New(Connection{Name: "away", Secrets: away{}}, false)
		ended := make(chan struct{})
		go func() {
			c.Run(ctx)
			close(ended)
		}()
		c.Want(Wanted{Secrets: []snapshots.SecretName{{Namespace: "shop", Name: "web-tls"}}})
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if c.Take().Status == nil {
			t.Error("nothing was tried")
		}
		cancel()
		told := time.Now()
		<-ended
		if took := time.Since(told); took > 0 {
			t.Errorf("it ended after %s", took)
		}
		<-time.After(2 * time.Minute) // the time of the next attempt
	})
}
