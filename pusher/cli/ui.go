package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/pusher/ui"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// pageFlags say where the page is served.
type pageFlags struct {
	address   string
	hosts     []string
	advertise string
	// compiler is the address of the compiler's /status, or secret:NAMESPACE/NAME with its report, "" to ask none.
	compiler string
	// repository is where a browser finds the store's repository, "" for what its URL says, or none.
	repository string
}

const repositoryUsage = "address at which a browser finds the store's git repository, for links to commits, such as https://github.com/OWNER/NAME. By default that of the store: git+ssh://git@HOST/PATH is taken for https://HOST/PATH. none leaves the links out"

const compilerUsage = "where the page finds fields and hints of what is left out, and since when: secret:NAMESPACE/NAME, which the compiler writes with --report-secret; or the address of the compiler's metrics, such as 127.0.0.1:8080, which tells them clients on its own host, also through kubectl port-forward. None if empty"

// reportAge is how old the report of a compiler may be that runs: it writes one a minute at least.
const reportAge = 3 * time.Minute

// compiled returns what asks the compiler for its status, nil if none is named.
func (f *storeFlags) compiled(compiler string) func(ctx context.Context) (json.RawMessage, error) {
	switch {
	case compiler == "":
		return nil
	case inSecret(compiler):
		return f.reported(compiler)
	}
	return func(ctx context.Context) (json.RawMessage, error) {
		var said json.RawMessage
		_, err := process.AskStatus(ctx, compiler, statusTimeout, &said)
		return said, err
	}
}

// reported returns what reads the report of a compiler in a Secret.
func (f *storeFlags) reported(secret string) func(ctx context.Context) (json.RawMessage, error) {
	client := sync.OnceValues(f.client)
	return func(ctx context.Context) (json.RawMessage, error) {
		name, err := statestore.Parse(secret)
		if err != nil {
			return nil, err
		}
		core, err := client()
		if err != nil {
			return nil, err
		}
		said, at, err := configmapstore.ReadCompilerReport(ctx, core.CoreV1(), name)
		switch {
		case apierrors.IsNotFound(err) || err == nil && said == nil:
			return nil, fmt.Errorf("no compiler has written its report into Secret %s: start one with --report-secret %s", name, name)
		case err != nil:
			return nil, fmt.Errorf("read the report of the compiler: %w", err)
		case time.Since(at) > reportAge:
			return nil, fmt.Errorf("the compiler has written no report into Secret %s since %s: see whether it runs", name, at.UTC().Format(time.RFC3339))
		}
		return said, nil
	}
}

const hostsUsage = "names by which the page may be asked for, besides localhost and addresses; a Service's name, or that of a proxy in front"

// uiFlags are those of the verb ui.
type uiFlags struct {
	storeFlags
	pageFlags
	log   process.LogOptions
	state string
}

func uiCommand() *cobra.Command {
	var f uiFlags
	cmd := &cobra.Command{
		Use:   "ui --store STORE [--state STATE]",
		Short: "Show the fleet and its history on a page in a browser",
		Long: `Serve a read-only page about a fleet to a browser on this machine: what runs where, how far
a rollout is, what happened and who did it, and what a snapshot changes. The command prints the
address of the page, and ends when you interrupt it.

The page reads the store, and the status that a pusher writes: the state of --state, or for a
store in a cluster the ConfigMap beside it. What only a running pusher knows is on the page that
the pusher serves itself, with pusher run --ui-address.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.storeFlags.add(cmd)
	f.log.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run: a file, or secret:NAMESPACE/NAME; or its status, configmap:NAMESPACE/NAME")
	cmd.Flags().StringVar(&f.address, "address", "127.0.0.1:0", "address to serve the page at; port 0 chooses a free one")
	cmd.Flags().StringSliceVar(&f.hosts, "ui-host", nil, hostsUsage)
	cmd.Flags().StringVar(&f.compiler, "ui-compiler", "", compilerUsage)
	cmd.Flags().StringVar(&f.repository, "ui-repository", "", repositoryUsage)
	return cmd
}

func (f *uiFlags) run(cmd *cobra.Command) error {
	if err := cmp.Or(f.pageFlags.check(), CheckAddress("address", f.address)); err != nil {
		return err
	}
	process.Lasting()
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	store, err := f.open(cmd.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	latest := ui.NewLatest()
	source := f.source(store, latest, f.pageFlags)
	if o, ok := cmd.Context().Value(originsKey{}).(Origins); ok {
		source.Origins, source.Lines = o.Request, o.Lines
	}
	source.Follow = func(ctx context.Context, changed func()) {
		go latest.Follow(ctx, changed)
		f.readFleet(ctx, latest)
	}
	addr, wait, err := ui.New(ctx, ui.Options{Source: source, Hosts: f.hosts, Log: log}).Serve(ctx, f.address)
	if err != nil {
		return process.WithHint(err, "choose another address with --address")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s/\n", addr)
	<-ctx.Done()
	wait()
	return nil
}

// Origins says which objects wrote lines: those that answer a request, and lines of files, as [ui.Source] has it.
type Origins struct {
	Request func(ctx context.Context, q ui.Question) ([]ui.Wrote, error)
	Lines   func(ctx context.Context, places []string) ([]ui.Wrote, error)
}

type originsKey struct{}

// WithOrigins returns a context for the verb ui whose page says so: the compiler knows, and the pusher does not.
func WithOrigins(ctx context.Context, o Origins) context.Context {
	return context.WithValue(ctx, originsKey{}, o)
}

// statusPace is how often a status is read that somebody else writes.
const statusPace = 2 * time.Second

// readFleet reads the status again and again until ctx is done.
func (f *uiFlags) readFleet(ctx context.Context, latest *ui.Latest) {
	place := f.state
	if place == "" && stores.InCluster(f.store) {
		place, _ = placeBeside(f.store) // the store was opened by the same name
	}
	if place == "" {
		latest.Set(ui.Fleet{Trouble: "no state of a pusher is named: start with --state to see the fleet", At: time.Now()})
		return
	}
	var last report.Status
	ticker := time.NewTicker(statusPace)
	defer ticker.Stop()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, statusTimeout)
		s, err := f.readStatus(once, place)
		cancel()
		now, trouble := time.Now(), ""
		if err == nil {
			last = s
		} else {
			trouble = report.FirstLine(err.Error(), report.LongestMessage)
		}
		if ctx.Err() == nil {
			latest.Set(ui.Fleet{Status: last, Trouble: trouble, At: now})
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// source is what the page is made of, apart from where the fleet is followed.
func (f *storeFlags) source(store ui.Store, latest *ui.Latest, page pageFlags) ui.Source {
	repository := page.repository
	switch repository {
	case "":
		repository = repositoryOf(f.store)
	case noRepository:
		repository = ""
	}
	return ui.Source{Channel: channelName(f.store), Fleet: latest.Fleet, Follow: latest.Follow, Store: store, Repository: repository, Compiled: f.compiled(page.compiler)}
}

// noRepository is the --ui-repository of who wants no links to commits.
const noRepository = "none"

// channelName names the channel of a store: its branch, its name in the cluster, or its folder.
func channelName(store string) string {
	if strings.HasPrefix(store, "git+") {
		if u, err := url.Parse(store); err == nil {
			if branch := u.Query().Get("branch"); branch != "" {
				return branch
			}
			return strings.TrimSuffix(path.Base(u.Path), ".git")
		}
	}
	return path.Base(strings.TrimPrefix(strings.TrimPrefix(store, configmapstore.Scheme), "dir:"))
}

// repositoryOf returns where a browser finds the repository of a store in git, "" for others. Forges that are
// reached over SSH have their pages at the same host and path, with HTTPS.
func repositoryOf(store string) string {
	rest, ok := strings.CutPrefix(store, "git+")
	u, err := url.Parse(rest)
	if !ok || err != nil || u.Hostname() == "" {
		return ""
	}
	switch u.Scheme {
	case "http", "https":
	case "ssh":
		u.Scheme, u.Host = "https", u.Hostname()
		if strings.Contains(u.Host, ":") {
			u.Host = "[" + u.Host + "]"
		}
	default:
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return strings.TrimSuffix(u.String(), ".git")
}

// at returns where others find a page that is served at an address, "" where it is not said.
func (f *pageFlags) at(served string) string {
	at, err := netip.ParseAddrPort(served)
	if err != nil || f.advertise == "" {
		return ""
	}
	return netip.AddrPortFrom(f.advertised(), at.Port()).String()
}

// advertised is the address of --ui-advertise, the zero value for none.
func (f *pageFlags) advertised() netip.Addr {
	ip, _ := netip.ParseAddr(f.advertise) // it was checked
	return ip.Unmap().WithZone("")
}

// check returns what is wrong with the flags.
func (f *pageFlags) check() error {
	if u, err := url.Parse(f.repository); f.repository != "" && f.repository != noRepository && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		return process.WithHint(process.Usage("--ui-repository: %q is not an address for a browser", f.repository), "name one such as https://github.com/OWNER/NAME, or none")
	}
	for _, host := range f.hosts {
		if strings.ContainsAny(host, "/: ") { // no request would ever match it
			return process.WithHint(process.Usage("--ui-host: %q is not the name of a host", host), "write the name alone, without http:// and without a port, such as hapsnap.example.com")
		}
	}
	if _, err := statestore.Parse(f.compiler); inSecret(f.compiler) && err != nil {
		return process.Usage("--ui-compiler: %w", err)
	}
	if err := CheckAddress("ui-compiler", f.compiler); !inSecret(f.compiler) && err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(f.advertise); f.advertise != "" && (err != nil || ip.IsUnspecified() || ip.IsMulticast()) {
		return process.WithHint(process.Usage("--ui-advertise: %q is not the IP address of a host", f.advertise), "name the address at which other pushers reach this one; in a pod that is status.podIP")
	}
	return nil
}

// leading returns what asks the state for the pusher that leads.
func (f *runFlags) leading() func(context.Context) (ui.Leader, error) {
	if !inSecret(f.options.State) {
		return nil
	}
	return func(ctx context.Context) (ui.Leader, error) {
		s, err := f.readStatus(ctx, f.options.State)
		if err != nil {
			return ui.Leader{}, err
		}
		out := ui.Leader{Status: s}
		if at, err := netip.ParseAddrPort(s.Page); err == nil && f.page.believes(at) {
			out.Address = at
		}
		return out, nil
	}
}

// believes reports whether the page of another pusher may be at an address that the state names. The
// state is a Secret, and who may write that is not to have this pusher ask whatever it reaches, such as
// the API server or the metadata of a cloud: pages of pushers that share a state have the same port, and
// are on this machine only if this one is told to be found there.
func (f *pageFlags) believes(at netip.AddrPort) bool {
	ip := at.Addr().Unmap()
	if ip.IsLoopback() {
		return f.advertised().IsLoopback()
	}
	_, port, err := net.SplitHostPort(f.address)
	return err == nil && at.Port() != 0 && ip.IsGlobalUnicast() && ip.Zone() == "" && port == strconv.Itoa(int(at.Port()))
}
