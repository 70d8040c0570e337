package cli

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// announcing returns what says in the cluster what becomes of its objects; nil where
// there is no cluster.
func (f *runFlags) announcing(log *slog.Logger, registry prometheus.Registerer) (pusher.Events, error) {
	inCluster := stores.InCluster(f.store)
	if !inCluster && f.kubeconfig == "" && !kubeconfig.Inside() {
		return nil, nil //nolint:nilnil // Nobody is to be told.
	}
	client, err := f.options.Pods()
	if err != nil {
		return nil, err
	}
	o := announce.Options{Client: client, Log: log, Metrics: registry}
	if o.Instance, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("find the name of this host: %w", err)
	}
	if inCluster {
		namespace, name, err := configmapstore.Parse(f.store)
		if err != nil {
			return nil, err
		}
		o.Namespace, o.Channel = namespace, configmapstore.ChannelName(name)
	}
	return announce.New(o), nil
}
