package pusher

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

var edgePods = fleet.Pods{Namespace: "edge", Secret: "user", UsernameKey: "name", PasswordKey: "pass", CASecret: "tls", ServerName: "edge.edge.svc"}

// The pusher fills only those Secrets that the fleet's file names.
func TestWantedCredentials(t *testing.T) {
	t.Parallel()
	wanted, err := WantedCredentials(edgePods, []string{"tls", "user", "tls"})
	if err != nil || len(wanted) != 2 || wanted[0].Certificate.DNSNames[0] != "edge.edge.svc" || wanted[1].Password.PasswordKey != "pass" {
		t.Errorf("%+v, %v", wanted, err)
	}
	both, nameless := edgePods, edgePods
	both.CASecret, nameless.ServerName = "user", ""
	for name, c := range map[string]struct {
		pods fleet.Pods
		want string
	}{"other": {edgePods, "name no Secret other"}, "user": {both, "both a password and a certificate"}, "tls": {nameless, "no tls.serverName"}} {
		if _, err := WantedCredentials(c.pods, []string{name}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The leader fills the Secrets, and reports those that it cannot fill.
func TestCredentialsAreMade(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "user"}})
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan core.Event, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := credentialsMaker{secrets: []string{"user", "tls"}, log: slog.New(slog.DiscardHandler)}
		m.run(ctx, client, edgePods, func(ev core.Event) { said <- ev })
	}()
	ev := (<-said).(core.CredentialsMade)
	cancel()
	<-done
	user, err := client.CoreV1().Secrets("edge").Get(t.Context(), "user", metav1.GetOptions{})
	if err != nil || len(user.Data["pass"]) == 0 {
		t.Errorf("the password is not made: %v", err)
	}
	if ev.Of != edgePods {
		t.Errorf("they are those of %+v", ev.Of)
	}
	if ev.Err == nil || !strings.Contains(ev.Err.Error(), "Secret edge/tls: it is gone") {
		t.Errorf("of the Secret that is gone: %v", ev.Err)
	}
}
