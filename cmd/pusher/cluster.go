package main

import (
	"fmt"
	"sync"

	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/process"
)

// client returns what makes a client of the cluster, once somebody needs it.
func (f *storeFlags) client() func() (kubernetes.Interface, error) {
	return sync.OnceValues(func() (kubernetes.Interface, error) {
		config, err := f.access().Load()
		if err != nil {
			return nil, process.WithHint(err, "name a kubeconfig file with --kubeconfig")
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("make a client of the cluster: %w", err)
		}
		return client, nil
	})
}
