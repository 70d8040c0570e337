package routing

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Userlist are the users of a Secret, one list for all backends that name it.
// Who they are is not known before a snapshot is pushed.
type Userlist struct {
	Name    string
	Secret  snapshots.SecretName
	Origins []Origin // of those that name it, sorted
}

// basicAuth gives the users of a Secret a list. It is there even if the Secret is
// not: then it has no users, and nobody gets in.
func (t *translation) basicAuth(a *policy.BasicAuth, by asker) {
	const option = "auth-basic"
	secret := snapshots.SecretName{Namespace: by.ingress.Ref.Namespace, Name: a.Secret}
	// Neither part holds an underscore, so that no two lists are confused.
	a.Users = secret.Namespace + "_" + secret.Name
	list := t.users[secret]
	if list == nil {
		list = &Userlist{Name: a.Users, Secret: secret}
		t.users[secret] = list
		t.checkUsers(secret)
	}
	if _, exists := t.secrets.find(secret); !exists {
		by.reportAs(t, diag.Warning, option, ": "+t.notSeen(secret), "nobody gets in until it does where snapshots are pushed")
	}
	origin := by.origin(option)
	if n := len(list.Origins); n == 0 || list.Origins[n-1] != origin {
		list.Origins = append(list.Origins, origin)
	}
}

// checkUsers reports the users of a Secret who cannot be let in, or at a cost.
func (t *translation) checkUsers(name snapshots.SecretName) {
	secret, exists := t.secrets.find(name)
	if !exists {
		return
	}
	at := secret.Position("data", bind.UsersKey)
	if plain := secret.Position("stringData", bind.UsersKey); plain.Line > at.Line {
		at = plain // of the two, the one that is there
	}
	report := func(severity diag.Severity, message, hint string) {
		t.found = append(t.found, diag.Diagnostic{
			Severity: severity, Position: at, Object: secret.Ref, Message: message, Hint: hint,
		})
	}
	_, problems, ok := live.Users(*secret.Value)
	if !ok {
		report(diag.Error, "has no key "+bind.UsersKey+" with users", "nobody gets in until it has: write lines as htpasswd -B does")
	}
	for _, p := range problems {
		severity := diag.Error
		if p.Usable {
			severity = diag.Warning
		}
		report(severity, "key "+bind.UsersKey+", "+p.Error(), p.Hint)
	}
}

// modelUsers returns the lists of users as the model has them.
func (t *translation) modelUsers() []Userlist {
	var out []Userlist
	for _, list := range t.users {
		slices.SortFunc(list.Origins, Origin.compare)
		list.Origins = slices.Compact(list.Origins)
		out = append(out, *list)
	}
	slices.SortFunc(out, func(a, b Userlist) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
