package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// Connection is how an API server is reached.
type Connection struct {
	Name           string // for people
	EndpointSlices discoveryv1.EndpointSlicesGetter
	Secrets        corev1.SecretsGetter
}

// Connect prepares a connection. Nothing is sent yet.
func Connect(o kubeconfig.Options) (Connection, error) {
	config, err := o.Load()
	if err != nil {
		return Connection{}, err
	}
	// Protobuf costs both sides less than JSON.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	discovery, err := discoveryv1.NewForConfig(config)
	if err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	core, err := corev1.NewForConfig(config)
	if err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return Connection{Name: config.Host, EndpointSlices: discovery, Secrets: core}, nil
}

// open returns how the objects of a query are listed.
func (c Connection) open(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
	if q.Kind == kindSecret {
		return kubewatch.Typed(c.Secrets.Secrets(q.Namespace)), true, nil
	}
	return kubewatch.Typed(c.EndpointSlices.EndpointSlices(q.Namespace)), true, nil
}
