package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// later are objects whose Ingress names another Secret at each of the first reads. A Secret is known after it was asked
// for, which is a change; the change of the Ingress is none that anybody hears of.
type later struct {
	changed chan struct{}
	last    int // which read is the last with a change
	reads   int
	asked   routing.Asked
}

func (*later) String() string { return "later" }

func (o *later) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	o.reads++
	n := min(o.reads, o.last)
	name := fmt.Sprintf("web%d", n)
	text := controllertest.Manifest(name, "5s")
	text = strings.Replace(text, "spec:\n", fmt.Sprintf("spec:\n  tls: [{hosts: [%s.example], secretName: s%d}]\n", name, n), 1)
	return compiler.Given{Set: manifests.ReadTexts(manifests.Text{File: "all.yaml", Data: []byte(text)})}.Read(ctx, c)
}

func (o *later) Await(named routing.Asked) bool {
	known := named.Within(o.asked)
	if o.asked = o.asked.And(named); !known {
		o.changed <- struct{}{}
	}
	return known
}

func (o *later) Complete(named routing.Asked) bool { return o.Await(named) }

func (o *later) Changes(context.Context, *slog.Logger) <-chan struct{} { return o.changed }

// A compile that found that objects are not known is none after which the next one waits.
func TestRunDoesNotWaitAfterObjectsWereUnknown(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, nil, func(o *controller.Options) {
		o.Source.Objects, o.Interval, o.MaxWait = &later{changed: make(chan struct{}, 1), last: 2}, time.Hour, time.Hour
	})
	r.AwaitRoute(t, "web2.example", true)
}

// A compile of objects that were read before is followed by one of those that are there now.
func TestRunFollowsAStaleCompile(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, nil, func(o *controller.Options) {
		o.Source.Objects = &later{changed: make(chan struct{}, 1), last: 3}
	})
	r.AwaitRoute(t, "web3.example", true)
	if _, n, _ := r.Store.Newest(); n != 2 {
		t.Errorf("%d snapshots, want that of web2 and that of web3", n)
	}
}
