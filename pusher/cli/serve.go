package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/pusher/ui"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// leaseHelp is the help text of --lease.
const leaseHelp = "Lease, as namespace/name, by which one of the pushers with the same state in a Secret is elected; by default the one of that Secret's name"

// leaseName returns the name of the Lease, for a state in a Secret.
func leaseName(f election.Flags, state string) (types.NamespacedName, error) {
	return f.Name("pusher", func() (types.NamespacedName, error) { return statestore.Parse(state) })
}

// checkLease returns an error if the flags of the election are wrong.
func checkLease(f election.Flags, flags *pflag.FlagSet, state string) error {
	if !inSecret(state) {
		for _, name := range []string{"lease", "lease-duration", "renew-deadline", "retry-period"} {
			if flags.Changed(name) {
				return process.WithHint(process.Usage("--%s is for a state that several pushers share", name), "use --state secret:NAMESPACE/NAME")
			}
		}
		return nil
	}
	if _, err := statestore.Parse(state); err != nil {
		return process.Usage("--state: %w", err)
	}
	if err := f.Check(); err != nil {
		return err
	}
	_, err := leaseName(f, state)
	return err
}

// share makes the pusher keep its state in a Secret, and take part in the election. It does not connect
// yet.
func (f *runFlags) share(o *pusher.Options, registry prometheus.Registerer, log *slog.Logger) (*election.Elector, error) {
	if !inSecret(o.State) {
		return nil, nil
	}
	client, err := f.clusterFlags.client()
	if err != nil {
		return nil, err
	}
	lease, err := leaseName(f.leader, o.State)
	if err != nil {
		return nil, err
	}
	identity, err := election.OwnIdentity()
	if err != nil {
		return nil, err
	}
	if read, err := fleet.ReadAgain(o.Fleet, nil); err == nil || read.Name != "" { // else the run says what is wrong with it
		identity = observe.Identity(read.Name, identity)
	}
	elector, err := election.New(election.Options{
		Program: "pusher", Leases: client.CoordinationV1(), Namespace: lease.Namespace, Name: lease.Name,
		Identity: identity, Times: f.leader.Times, Log: log, Metrics: registry,
	})
	if err != nil {
		return nil, err
	}
	secret, err := statestore.Parse(o.State)
	if err != nil {
		return nil, err
	}
	o.StateStore = statestore.New(client.CoreV1().Secrets(secret.Namespace), secret.Namespace, secret.Name, identity)
	o.Leader = elector
	return elector, nil
}

// push runs the pusher, beside its part in the election if there are several.
func push(ctx context.Context, o pusher.Options, elector *election.Elector) error {
	if elector == nil {
		return hinted(pusher.Run(ctx, o))
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return elector.Run(ctx) })
	group.Go(func() error {
		defer stop()
		return hinted(pusher.Run(ctx, o))
	})
	return group.Wait()
}

// announcing returns the announcer of Events, nil without a cluster.
func (f *runFlags) announcing(log *slog.Logger, registry prometheus.Registerer) (observe.Events, error) {
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
		store, err := configmapstore.Parse(f.store)
		if err != nil {
			return nil, err
		}
		o.Namespace, o.Channel = store.Namespace, configmapstore.ChannelName(store.Name)
	}
	return announce.New(o), nil
}

// hookURL reads the address of a webhook from a file. Errors do not contain it, since it often has a
// token.
func hookURL(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the webhook's URL: %w", err)
	}
	address := strings.TrimSpace(string(data))
	if u, err := url.Parse(address); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New(file + " holds no http or https URL")
	}
	return address, nil
}

// notifying starts to send notices to the webhook, if there is one. It returns the function that takes
// notices, and one that sends the rest at the end.
func notifying(ctx context.Context, file string, log *slog.Logger) (send func(notify.Notice), wait func(), err error) {
	if file == "" {
		return nil, func() {}, nil
	}
	if _, err := hookURL(file); err != nil {
		return nil, nil, fmt.Errorf("--notify-url-file: %w", err)
	}
	sender := notify.New(func() (string, error) { return hookURL(file) }, log)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sender.Run(ctx)
	}()
	return sender.Send, func() {
		stop()
		<-done
	}, nil
}

// reporting returns how the pusher reports the status of its fleet: into the ConfigMap of
// --status, or else beside the snapshots, if the store has a place for it. Otherwise it is nil.
func (f *runFlags) reporting(store stores.Store) (func(context.Context, report.Published) error, error) {
	if f.status == "" {
		place, ok := store.(interface {
			SetStatus(ctx context.Context, r configmapstore.Report) error
		})
		if !ok {
			return nil, nil //nolint:nilnil // Nobody is to be told.
		}
		return func(ctx context.Context, p report.Published) error {
			return hintedStatus(place.SetStatus(ctx, written(p)))
		}, nil
	}
	name, err := parsePlace(f.status)
	if err != nil {
		return nil, process.Usage("--status: %w", err)
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, p report.Published) error {
		if err := configmapstore.WriteStatus(ctx, client.CoreV1(), name, "", written(p)); err != nil {
			return hintedStatus(fmt.Errorf("write the status into ConfigMap %s: %w", name, err))
		}
		return nil
	}, nil
}

// written returns a status in the form of a ConfigMap.
func written(p report.Published) configmapstore.Report {
	return configmapstore.Report{By: p.By, At: p.At, Fields: p.Fields, Packed: p.Status}
}

// hintedStatus says what to do about an error that a person has to mend.
func hintedStatus(err error) error {
	if _, ok := errors.AsType[configmapstore.OtherWriterError](err); ok {
		return report.UnwritableError{Err: fmt.Errorf("%w; give each pusher a place of its own with --status, or end one of them", err)}
	}
	if errors.Is(err, configmapstore.ErrStatusDenied) {
		return report.UnwritableError{Err: fmt.Errorf("%w; pusher rbac prints the roles that it needs", err)}
	}
	return err
}

// serve runs the pusher beside the server for health, metrics and status.
func (f *runFlags) serve(ctx context.Context, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var last latest
	o, registry := f.options, process.NewRegistry()
	o.Metrics, o.Status = registry, last.set
	if f.cluster != nil {
		registry.MustRegister(f.cluster)
	}
	o.CredentialsMetrics = credentials.NewMetrics(registry, "pusher")
	elector, err := f.share(&o, registry, log)
	if err != nil {
		return err
	}
	if o.Events, err = f.announcing(log, registry); err != nil {
		return err
	}
	_, wait, err := process.Server{
		Address: f.address, Ready: last.ready, Metrics: registry, Log: log,
		Handle: map[string]http.Handler{"GET " + process.StatusPath: http.HandlerFunc(last.serve)},
	}.Start(ctx)
	if err != nil {
		return err
	}
	shown, err := f.servePage(ctx, &o, log)
	if err != nil {
		return err
	}
	err = push(ctx, o, elector)
	stop()
	wait()
	shown()
	return err
}

// servePage serves the page, if a flag says so, from a store of its own: the pusher does not wait for
// readers of the page. It returns a function that waits for its end.
func (f *runFlags) servePage(ctx context.Context, o *pusher.Options, log *slog.Logger) (ended func(), err error) {
	if f.page.address == "" {
		return func() {}, nil
	}
	store, err := f.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	latest, tell := ui.NewLatest(), o.Status
	o.Watch = ui.NewWatcher(latest).Watch
	o.Status = func(s report.Status) {
		if tell(s); s.Standby {
			latest.Set(ui.Fleet{Status: s, At: s.Updated})
		}
	}
	source := f.source(store, latest, f.page)
	o.Directory = &instance.Directory{}
	source.Servers = func(ctx context.Context, backend string) (out []ui.ServerState) {
		for name, servers := range o.Directory.Servers(ctx, backend) {
			for _, s := range servers {
				up := s.OperationalState == "up" && s.AdminState == dataplane.StateReady
				out = append(out, ui.ServerState{Instance: name, Address: s.Address, Port: s.Port, Up: up})
			}
		}
		return out
	}
	server := ui.New(ctx, ui.Options{Source: source, Leader: f.leading(), Hosts: f.page.hosts, Log: log})
	at, wait, err := server.Serve(ctx, f.page.address)
	if err != nil {
		store.Close()
		return nil, err
	}
	o.Page = f.page.at(at)
	return func() {
		wait()
		store.Close()
	}, nil
}

// latest is the last status of the pusher.
type latest struct {
	mu     sync.Mutex
	status report.Status
}

func (l *latest) set(s report.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = s
}

func (l *latest) get() report.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// ready returns why the pusher is not ready: it has not read everything yet, or it lacks something that
// it needs.
func (l *latest) ready() error {
	s := l.get()
	if s.Updated.IsZero() || s.Channel.Message == report.NotRead {
		return errors.New(report.NotRead)
	}
	if t, blocked := s.Blocked(); blocked {
		return fmt.Errorf("%s: %s", t.About, t.Error)
	}
	return nil
}

func (l *latest) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.get()) // the client is gone
}
