package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The author of a commit is the named one, else the one that git knows, else the user.
func TestIdentity(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home, "GIT_AUTHOR_NAME": "", "GIT_AUTHOR_EMAIL": ""} {
		t.Setenv(name, value)
	}
	check := func(author string, want channel.Person) {
		t.Helper()
		if got, err := (&whoFlags{author: author}).identity(t.Context(), nil); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if p, err := (&whoFlags{}).identity(t.Context(), nil); err != nil || p.Name != whoami() || !strings.HasPrefix(p.Email, whoami()+"@") {
		t.Errorf("%+v, %v", p, err)
	}
	// The name that an API server reports comes before that of the machine.
	for user, want := range map[string]channel.Person{
		"ann": {Name: "ann", Email: "ann@kubernetes"}, "bob@example.com": {Name: "bob@example.com", Email: "bob@example.com"}, "": {},
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			review := &authenticationv1.SelfSubjectReview{}
			if review.Status.UserInfo.Username = user; user == "" {
				return true, nil, errors.New("forbidden")
			}
			return true, review, nil
		})
		got, err := (&whoFlags{}).identity(t.Context(), func() (kubernetes.Interface, error) { return client, nil })
		if want.Name == "" {
			want, _ = (&whoFlags{}).identity(t.Context(), nil)
		}
		if err != nil || got != want {
			t.Errorf("whom the API server takes for %q is %+v, %v", user, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Ann Example\n\temail = ann@example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("", channel.Person{Name: "Ann Example", Email: "ann@example.com"})
	t.Setenv("GIT_AUTHOR_NAME", "Ann at work")
	check("", channel.Person{Name: "Ann at work", Email: "ann@example.com"})
	check("Bob <bob@example.com>", channel.Person{Name: "Bob", Email: "bob@example.com"})
	for _, author := range []string{"Bob", "<bob@example.com>", "Bob <>", "Bob\nx <bob@example.com>", "Bob <bob@example.com> <x@y>"} {
		if p, err := (&whoFlags{author: author}).identity(t.Context(), nil); process.Code(t.Context(), err) != process.ExitUsage {
			t.Errorf("%q is %+v, %v", author, p, err)
		}
	}
}
