package pusher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// credentialsMaker fills and renews Secrets that a fleet's file names, while this pusher leads.
type credentialsMaker struct {
	secrets []string
	metrics *credentials.Metrics
	log     *slog.Logger
}

// run goes on until ctx is done, and tells what is wrong.
func (m credentialsMaker) run(ctx context.Context, client kubernetes.Interface, pods fleet.Pods, send func(core.Event)) {
	if len(m.secrets) == 0 {
		return
	}
	credentials.New(credentials.Options{
		Namespace: pods.Namespace, Secrets: client.CoreV1().Secrets(pods.Namespace), Log: m.log, Metrics: m.metrics,
		Wanted: func(context.Context) ([]credentials.Wanted, error) { return WantedCredentials(pods, m.secrets) },
	}).Run(ctx, func(err error) { send(core.CredentialsMade{Of: pods, Err: err}) })
}

// WantedCredentials returns what Secrets of these names are to hold, which a fleet's file has
// to name.
func WantedCredentials(pods fleet.Pods, names []string) ([]credentials.Wanted, error) {
	var out []credentials.Wanted
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		switch {
		case name == pods.Secret && name == pods.CASecret:
			return nil, fmt.Errorf("make credentials: Secret %s cannot have both a password and a certificate", name)
		case name == pods.Secret:
			out = append(out, credentials.Wanted{Secret: name, Password: &credentials.Password{UsernameKey: pods.UsernameKey, PasswordKey: pods.PasswordKey}})
		case name == pods.CASecret && pods.ServerName != "":
			out = append(out, credentials.Wanted{Secret: name, Certificate: &credentials.Certificate{DNSNames: []string{pods.ServerName}}})
		case name == pods.CASecret:
			return nil, fmt.Errorf("make credentials: Secret %s is for a certificate, and the fleet's pods have no tls.serverName", name)
		default:
			return nil, fmt.Errorf("make credentials: the fleet's pods name no Secret %s", name)
		}
	}
	return out, nil
}
