package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/request"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// serversTimeout is how long the cluster may take to return the servers. The rest of the explanation does not need
// them.
const serversTimeout = 10 * time.Second

// serverBook knows the endpoints of Services. They come from the manifests, from the snapshot, or from the cluster. It
// asks the cluster only about the Services that the explanation mentions.
type serverBook struct {
	directives []bind.Directive
	fixed      []byte // the configuration, which may have fixed servers

	endpoints map[snapshots.ServicePort][]snapshots.Endpoint // the known endpoints
	all       bool                                           // Services that are not in endpoints have none
	from      string                                         // where they come from, for people
	client    kubernetes.Interface                           // nil if no cluster is asked
	missing   map[snapshots.ServicePort]bool                 // ports whose Services are not in the cluster
	why       string                                         // why something is not known
	past      bool                                           // what answered then is explained, and the servers are those of now
	elsewhere bool                                           // the cluster is not the one that the store is in: its servers decide nothing
}

// What from says for endpoints in a file of the snapshot, and how it begins for a cluster.
const recordedFrom, clusterFrom = "the snapshot", "cluster "

// serverBook returns the book for what is explained.
func (f *requestFlags) serverBook(of explained, directives []bind.Directive) (*serverBook, error) {
	book := &serverBook{directives: directives, fixed: of.snapshot.Config(), why: "the pusher joins the endpoints of the Service"}
	var err error
	if of.compiled {
		book.endpoints, book.all, book.from = live.Endpoints(inputs.Values(of.objects.EndpointSlices)), len(of.objects.EndpointSlices) > 0, of.name
	} else {
		book.endpoints, book.all, err = of.snapshot.RecordedEndpoints()
		book.from, book.past = recordedFrom, of.past && !book.all
	}
	switch {
	case err != nil || book.all || f.manifests != "":
		return book, err
	case !f.cluster.wanted():
		book.why += "; with --kubeconfig they are read"
		return book, nil
	}
	book.endpoints, book.missing = map[snapshots.ServicePort][]snapshots.Endpoint{}, map[snapshots.ServicePort]bool{}
	book.elsewhere = !of.compiled && !stores.InCluster(f.store)
	f.cluster.logs.Do(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }) // what fails is said in the explanation
	if book.client, book.from, err = f.asked(); err != nil {
		book.why += ", and the cluster that has them cannot be asked: " + err.Error()
	}
	return book, nil
}

// asked returns a client of the cluster, and the name of the cluster. It sends nothing.
func (f *requestFlags) asked() (kubernetes.Interface, string, error) {
	config, err := f.cluster.options("").Load()
	if err != nil {
		return nil, "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, "", err
	}
	return client, clusterFrom + config.Host, nil
}

// of returns the endpoints of a Service port, and whether they are known.
func (b *serverBook) of(ctx context.Context, port snapshots.ServicePort) ([]snapshots.Endpoint, bool) {
	if known, ok := b.endpoints[port]; ok || b.all || b.client == nil {
		return known, ok || b.all
	}
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	list, err := b.client.DiscoveryV1().EndpointSlices(port.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{discoveryv1.LabelServiceName: port.Service}.String()})
	if err != nil {
		b.client, b.why = nil, fmt.Sprintf("read EndpointSlices of Service %s/%s in %s: %v", port.Namespace, port.Service, b.from, err)
		return nil, false
	}
	for of, endpoints := range live.Endpoints(list.Items) {
		b.endpoints[of] = endpoints
	}
	found := b.endpoints[port]
	if len(list.Items) == 0 {
		_, err := b.client.CoreV1().Services(port.Namespace).Get(ctx, port.Service, metav1.GetOptions{})
		if b.missing[port] = apierrors.IsNotFound(err); err != nil && !b.missing[port] && b.elsewhere {
			b.client, b.why = nil, fmt.Sprintf("%s has no EndpointSlices of Service %s/%s, which may not be there: %v", b.from, port.Namespace, port.Service, err)
			return nil, false
		}
	}
	b.endpoints[port] = found // even if there are none
	return found, true
}

// usable returns how many servers each backend has. A Service counts as one server if its endpoints are not known, or
// are those of another time or cluster than the explanation.
func (b *serverBook) usable(ctx context.Context) func(string) int {
	fixed := request.Servers(b.fixed)
	return func(backend string) int {
		n := fixed[backend]
		for _, d := range b.directives {
			if d.Backend != backend || d.Weight == 0 && b.severalIn(backend) {
				continue
			}
			if endpoints, known := b.of(ctx, d.Service); known && !b.past && !b.elsewhere {
				n += len(endpoints)
			} else {
				n++
			}
		}
		return n
	}
}

func (b *serverBook) severalIn(backend string) bool {
	n := 0
	for _, d := range b.directives {
		if d.Backend == backend {
			n++
		}
	}
	return n > 1
}

// describe adds the Services of the answering backend, with their servers, to a report.
func (b *serverBook) describe(ctx context.Context, out *requestReport) {
	out.EndpointsKnown = true
	missing := 0
	for _, d := range b.directives {
		if d.Backend != out.Backend {
			continue
		}
		endpoints, known := b.of(ctx, d.Service)
		out.EndpointsKnown = out.EndpointsKnown && known
		out.Services = append(out.Services, serviceReport{Service: d.Service.String(), Weight: d.Weight, Endpoints: endpoints, Missing: b.missing[d.Service]})
		if b.missing[d.Service] {
			missing++
		}
	}
	if b.elsewhere && missing > 0 && missing == len(out.Services) {
		out.EndpointsKnown, b.why = false, "none of these Services is in "+b.from
	}
	if !out.EndpointsKnown || len(out.Services) == 0 && !b.all {
		out.EndpointsKnown, out.EndpointsUnknown = false, b.why
		return
	}
	out.EndpointsFrom, out.EndpointsLater, out.EndpointsElsewhere = b.from, b.past, b.elsewhere
}

type serviceReport struct {
	Service   string               `json:"service"`
	Weight    int                  `json:"weight"`
	Endpoints []snapshots.Endpoint `json:"endpoints"`
	Missing   bool                 `json:"missing,omitempty"` // the cluster was asked and has no such Service
}

func (r requestReport) printServers(w io.Writer) {
	if len(r.Services) == 0 {
		return
	}
	if !r.EndpointsKnown {
		sayRequest(w, "servers", "not known here: "+r.EndpointsUnknown)
		return
	}
	when := "servers now"
	if r.EndpointsFrom == recordedFrom {
		when = "servers, as the snapshot has them"
	}
	if strings.HasPrefix(r.EndpointsFrom, clusterFrom) {
		when += ", in " + r.EndpointsFrom
	}
	switch {
	case r.EndpointsLater:
		when += " (those of then are not known)"
	case r.EndpointsElsewhere:
		when += " (the store is not in that cluster, so they decide nothing)"
	}
	fmt.Fprintln(w, when)
	for _, s := range r.Services {
		var addresses []string
		for i, e := range s.Endpoints {
			if i == 10 {
				addresses = append(addresses, fmt.Sprintf("and %d more", len(s.Endpoints)-i))
				break
			}
			state := ""
			if e.Draining {
				state = " (draining)"
			}
			addresses = append(addresses, net.JoinHostPort(e.Address, strconv.Itoa(e.Port))+state)
		}
		process.Hang(w, "  ", "    ", s.Service+": "+cmp.Or(strings.Join(addresses, ", "), map[bool]string{true: "none, for the Service is not there", false: "none"}[s.Missing]))
	}
}
