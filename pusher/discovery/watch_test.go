package discovery

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// Until all was read, no instances are reported, and an error says what may not be read.
func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "dataplane", errors.New("no"))
	client := fake.NewClientset()
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, forbidden })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	Watch(ctx, client, fleet.Pods{Namespace: "edge", Secret: "dataplane"}, slog.New(slog.DiscardHandler), func(found []fleet.Instance, err error) {
		switch {
		case found != nil || err == nil || !strings.HasPrefix(err.Error(), "the pods in edge were not read yet"):
			t.Errorf("reported %v, %v", found, err)
			stop()
		case strings.Contains(err.Error(), "Secret edge/dataplane (") && strings.Contains(err.Error(), "forbidden"):
			stop()
		}
	})
}
