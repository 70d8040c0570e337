package cli

import (
	"os"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
)

// What people see at terminals of 80 and of 120 columns.
func TestTerminalOfStatus(t *testing.T) {
	report := compiler.Report{
		Head: newestReport(),
		Found: []compiler.Finding{{
			Kind: "Ingress", Namespace: "shop", Name: "checkout", File: "manifests/shop/checkout.yaml", Line: 17, Column: 5, Since: before(4 * time.Minute),
			Reason: `annotation hapsnap.dev/rate-limit: "lots" is not a number of requests per second`, Hint: "use requests per second, such as 100, or 6000/m for what is counted by the minute",
		}},
		Compiler: &compiler.CompilerReport{
			Leads: true, Reason: "held: a loss waits for approval", LastSuccess: before(time.Minute), Warnings: 2,
			Held: &compiler.HeldReport{Lost: "6 of 7 hosts and 12 of 15 backends would be gone", Since: newestReport().Snapshot, Digest: "sha256:0123456789abcdef", Approval: "to approve it, annotate the configuration with hapsnap.dev/approve-loss: 0123456789"},
		},
	}
	terminal.Golden(t, "status", func(to *os.File) { printReport(process.On(to, to, false), report, reportTime) })
}
