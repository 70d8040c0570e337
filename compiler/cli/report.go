package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

const reportSecretHelp = "Secret, as NAMESPACE/NAME, in which the compiler that leads writes what /status tells clients on its own host: objects that are left out, why, and what to do. The page of the pusher shows it (--ui-compiler secret:NAMESPACE/NAME)"

// reportSecret returns the Secret of --report-secret; ok is false if there is none.
func reportSecret(flag string) (name types.NamespacedName, ok bool, err error) {
	if flag == "" {
		return name, false, nil
	}
	if name, err = objectname.Parse(flag); err != nil {
		return name, false, process.Usage("--report-secret: %w", err)
	}
	return name, true, nil
}

// checkReport returns a usage error for a --report-secret that cannot be written.
func (f *runFlags) checkReport(objects compiler.Objects) error {
	_, wanted, err := reportSecret(f.report)
	if _, follows := objects.(*cluster.Cluster); wanted && !follows {
		return process.WithHint(process.Usage("--report-secret is for a compiler that follows a cluster"), "use --kubeconfig, or leave --report-secret out")
	}
	return err
}

// How often a reporter looks whether there is something new to write, how old what it wrote may become, and how
// long a write may take.
const (
	reportPace    = 5 * time.Second
	reportAge     = time.Minute
	reportTimeout = 10 * time.Second
)

// reporter writes the report of the compiler that leads: names of objects, and what is wrong with them, are for
// those who may read the Secret. No report is written before something was compiled, so that a compiler that has
// just started does not say that nothing is left out.
type reporter struct {
	report  func() controller.Report
	leading func() bool
	write   func(ctx context.Context, report []byte, at time.Time) error
	log     *slog.Logger

	last   *controller.Report // what was written last, without the time of the last compile; nil for nothing
	at     time.Time          // when
	failed string             // the error of the last write, which is logged once
}

// newReporter returns what writes into the Secret.
func newReporter(c cluster.Connection, name types.NamespacedName, status *controller.Status, leading func() bool, log *slog.Logger) (*reporter, error) {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.Name, err)
	}
	return &reporter{
		report: status.Report, leading: leading, log: log.With("secret", name.String()),
		write: func(ctx context.Context, report []byte, at time.Time) error {
			return configmapstore.WriteCompilerReport(ctx, client.CoreV1(), name, report, at)
		},
	}, nil
}

// run writes until ctx is done.
func (r *reporter) run(ctx context.Context) {
	ticker := time.NewTicker(reportPace)
	defer ticker.Stop()
	for {
		r.once(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once writes what is new, and what is old once more, by which readers see that the compiler runs.
func (r *reporter) once(ctx context.Context, now time.Time) {
	report := r.report()
	if !r.leading() || report.Compiler.Ingresses == nil && report.Compiler.CompileError == "" {
		r.last = nil
		return
	}
	of := *report.Compiler
	of.LastSuccess, of.Gateway = time.Time{}, nil // Within leaves out the second
	untimed := &controller.Report{Head: report.Head, Found: report.Found, Withheld: report.Withheld, Compiler: &of}
	if now.Sub(r.at) < reportAge && reflect.DeepEqual(untimed, r.last) {
		return
	}
	report, err := report.Within(configmapstore.MaxReport)
	if err != nil {
		r.log.Error("the report of the compiler cannot be written", "err", err)
		return
	}
	text, _ := json.Marshal(report) // it was marshalled before
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := r.write(ctx, text, now); err != nil {
		if ctx.Err() == nil && err.Error() != r.failed {
			r.log.Warn("the report of the compiler cannot be written, trying again", "err", err, "hint", "see what compiler rbac --report-secret grants")
			r.failed = err.Error()
		}
		return
	}
	if r.failed != "" {
		r.log.Info("the report of the compiler is written again")
	}
	r.last, r.at, r.failed = untimed, now, ""
}
