package cli

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// webhookFlags are those of the admission webhook.
type webhookFlags struct {
	address, certDir, configMap, clientCA string
	clientNames                           []string
}

// defaultWebhookAddress has the port that webhooks have by custom.
const defaultWebhookAddress = ":9443"

func (f *webhookFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "webhook-address", defaultWebhookAddress, "address for the reviews of an API server over HTTPS, if --webhook-cert-dir is given")
	flags.StringVar(&f.certDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key for reviews, read again when they change; no reviews if empty")
	flags.StringVar(&f.clientCA, "webhook-client-ca", "", "file with the authorities of the client certificates that may ask for reviews, the API server's, read again when it changes; anybody may if empty")
	flags.StringSliceVar(&f.clientNames, "webhook-client-name", nil, "common name or DNS name of client certificates that may ask for reviews, beside being signed by --webhook-client-ca; any if not given")
	flags.StringVar(&f.configMap, "webhook-config-map", "", "ConfigMap, as NAMESPACE/NAME, whose key "+admission.ConfigKey+" is reviewed as the configuration; that of --config-map if empty")
}

// enabled reports whether there are to be reviews.
func (f *webhookFlags) enabled() bool { return f.certDir != "" }

// check returns a usage error for flags that do not fit.
func (f *webhookFlags) check() error {
	_, err := objectname.Parse(f.configMap)
	switch {
	case f.address != defaultWebhookAddress && f.certDir == "":
		return process.WithHint(process.Usage("the webhook has no certificate"), "use --webhook-cert-dir with a directory for tls.crt and tls.key; they may come later")
	case f.clientCA != "" && f.certDir == "":
		return process.WithHint(process.Usage("--webhook-client-ca is given, and there is no webhook"), "use --webhook-cert-dir too")
	case len(f.clientNames) > 0 && f.clientCA == "":
		return process.WithHint(process.Usage("--webhook-client-name is given, and no authority vouches for names"), "use --webhook-client-ca too")
	case f.configMap != "" && err != nil:
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
	if !f.enabled() {
		return webhook{}, nil
	}
	configMap, _ := objectname.Parse(f.configMap) // which was checked, or is empty
	server, err := admission.Start(ctx, admission.Options{
		Address: f.address, CertDir: f.certDir, ClientCA: f.clientCA, ClientNames: f.clientNames, ConfigMap: configMap,
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
