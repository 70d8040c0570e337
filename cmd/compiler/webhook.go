package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/internal/process"
)

// webhookFlags are those of the admission webhook.
type webhookFlags struct {
	address, certDir, configMap string
}

func (f *webhookFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "webhook-address", "", "address for the reviews of an API server over HTTPS, such as :9443; none if empty")
	flags.StringVar(&f.certDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key for them, read again when they change")
	flags.StringVar(&f.configMap, "webhook-config-map", "", "ConfigMap, as NAMESPACE/NAME, whose key "+admission.ConfigKey+" is reviewed as the configuration; that of --config-map if empty")
}

// check returns a usage error for flags that do not fit.
func (f *webhookFlags) check() error {
	namespace, name, ok := strings.Cut(f.configMap, "/")
	switch {
	case f.address != "" && f.certDir == "":
		return process.WithHint(process.Usage("the webhook has no certificate"), "use --webhook-cert-dir with a directory for tls.crt and tls.key; they may come later")
	case f.configMap != "" && (!ok || namespace == "" || name == ""):
		return process.WithHint(process.Usage("--webhook-config-map=%s: not a name", f.configMap), "use NAMESPACE/NAME")
	}
	return nil
}

// webhook is the server, or none.
type webhook struct {
	server *admission.Server // nil: none
}

// start starts the server if there is to be one.
func (f *webhookFlags) start(ctx context.Context, judge *compiler.Judge, metrics prometheus.Registerer, log *slog.Logger) (webhook, error) {
	if f.address == "" {
		return webhook{}, nil
	}
	namespace, name, _ := strings.Cut(f.configMap, "/")
	server, err := admission.Start(ctx, admission.Options{
		Address: f.address, CertDir: f.certDir, ConfigMap: types.NamespacedName{Namespace: namespace, Name: name},
		Judge: judge, Metrics: metrics, Log: log,
	})
	return webhook{server}, err
}

// ready returns why reviews cannot be answered, or nil.
func (w webhook) ready() error {
	if w.server == nil {
		return nil
	}
	return w.server.Ready()
}

// wait waits for the end of the server.
func (w webhook) wait() {
	if w.server != nil {
		w.server.Wait()
	}
}
