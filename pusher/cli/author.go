package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// authorForm is how git writes a person.
var authorForm = regexp.MustCompile(`^([^<>\n]*[^<>\s]) <([^<>\s]+)>$`)

// authentication is a client of an API server that can say who asks it.
type authentication func() (kubernetes.Interface, error)

// kubernetesTimeout is how long an API server may take to say who somebody is.
const kubernetesTimeout = 10 * time.Second

// kubernetesUser returns whom an API server takes this user for; zero if it cannot be asked.
func kubernetesUser(ctx context.Context, ask authentication) channel.Person {
	if ask == nil {
		return channel.Person{}
	}
	client, err := ask()
	if err != nil {
		return channel.Person{}
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return channel.Person{}
	}
	name := review.Status.UserInfo.Username
	if strings.Contains(name, "@") {
		return channel.Person{Name: name, Email: name}
	}
	return channel.Person{Name: name, Email: name + "@kubernetes"}
}

// identity returns who a change is by.
func (f *channelFlags) identity(ctx context.Context) (channel.Person, error) {
	var ask authentication
	if stores.InCluster(f.store) || f.kubeconfig != "" || kubeconfig.Inside() {
		ask = f.client
	}
	return f.who.identity(ctx, ask)
}

// identity returns who a commit is by: the one that was named, else the identity that git has for
// this user, else whom the API server takes them for, if there is one, else who acts, as the system
// calls them.
func (f *whoFlags) identity(ctx context.Context, ask authentication) (channel.Person, error) {
	if f.author != "" {
		parts := authorForm.FindStringSubmatch(strings.TrimSpace(f.author))
		if parts == nil {
			return channel.Person{}, process.WithHint(process.Usage("--author %q is no person", f.author), "write it as git does: 'Ann Example <ann@example.com>'")
		}
		return channel.Person{Name: parts[1], Email: parts[2]}, nil
	}
	if p := gitIdentity(); p.Name != "" {
		return p, nil
	}
	if p := kubernetesUser(ctx, ask); p.Name != "" {
		return p, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := cmp.Or(whoami(), "unknown")
	return channel.Person{Name: name, Email: fmt.Sprintf("%s@%s", name, host)}, nil
}

// gitIdentity returns what git has for this user, in its environment or in the user's
// configuration. A configuration that cannot be read has none.
func gitIdentity() channel.Person {
	p := channel.Person{Name: os.Getenv("GIT_AUTHOR_NAME"), Email: os.Getenv("GIT_AUTHOR_EMAIL")}
	if c, err := config.LoadConfig(config.GlobalScope); err == nil {
		p.Name, p.Email = cmp.Or(p.Name, c.Author.Name, c.User.Name), cmp.Or(p.Email, c.Author.Email, c.User.Email)
	}
	if p.Name == "" || p.Email == "" {
		return channel.Person{}
	}
	return p
}
