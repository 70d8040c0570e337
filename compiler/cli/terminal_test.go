package cli

import (
	"os"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// This is the output on terminals of 80 and of 120 columns.
func TestTerminalOfStatus(t *testing.T) {
	report := controller.Report{
		Head: newestReport(),
		Found: []controller.Finding{{
			Kind: "Ingress", Namespace: "shop", Name: "checkout", File: "manifests/shop/checkout.yaml", Line: 17, Column: 5, Since: before(4 * time.Minute),
			Reason: `annotation hapsnap.dev/rate-limit: "lots" is not a number of requests per second`, Hint: "use requests per second, such as 100, or 6000/m for what is counted by the minute",
		}},
		Compiler: &controller.CompilerReport{
			Leads: true, Reason: "held: a loss waits for approval", LastSuccess: before(time.Minute), Warnings: 2,
			Held: &controller.HeldReport{Lost: "6 of 7 hosts and 12 of 15 backends would be gone", Since: newestReport().Snapshot, Digest: "sha256:0123456789abcdef", Approval: "to approve it, annotate the configuration with hapsnap.dev/approve-loss: 0123456789"},
		},
	}
	terminal.Golden(t, "status", func(to *os.File) { printReport(process.On(to, to, false), report, reportTime) })
}

// An explained request fits a terminal, except for lines of the configuration, which are not wrapped.
func TestTerminalOfRequest(t *testing.T) {
	report := requestReport{
		Request: "GET https://shop.example.com/cart/7", In: "configmap:edge/shop@r000012-9f3ac01b2d",
		Chosen: "the newest, and NOT what should run: r000010-0c2ab01f2e is pinned by ann: checkout is slow; use --snapshot r10",
		Answer: request.Answer{
			Backend: "shop_cart_80", Listener: request.Line{File: "haproxy.cfg", Line: 84, Text: "bind *:443 ssl crt-list files/https.crtlist alpn h2,http/1.1"},
			Lines: []request.Line{{File: "maps/prefix.map", Line: 3, Text: "shop.example.com|/cart/ shop_cart_80"}},
		},
		Services:         []serviceReport{{Service: "shop/cart"}},
		EndpointsUnknown: `read EndpointSlices of Service shop/cart in cluster https://10.0.0.1:6443: endpointslices.discovery.k8s.io is forbidden: User "ann" cannot list`,
		Losers: []loser{{
			Kind: "Ingress", Namespace: "wiki", Name: "other", Rule: "shop.example.com/cart (Prefix)", File: "manifests/other.yaml", Line: 10, Column: 34,
			Reason: "it was taken by Ingress shop/web, which is as old and comes first by name",
		}},
		LeftOut: []string{`Ingress shop/typo: path "/gift cards" holds a space, which no path of a request has without being encoded`},
		Asked:   &asked{Status: 200, Backend: "shop_cart_80", Agrees: true},
	}
	terminal.Golden(t, "request", func(to *os.File) {
		if err := report.print(process.On(to, to, false)); err != nil {
			t.Error(err)
		}
	})
}
