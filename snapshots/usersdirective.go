package snapshots

import (
	"fmt"
	"strings"
)

// UsersDirective says where the users of a Secret belong. It is a comment of its
// own in a userlist section:
//
//	#hapsnap users NAMESPACE/SECRET
//
// [Bind] writes one user line for each line of htpasswd under the key auth of the
// Secret, see [ParseHtpasswd]. Without the Secret the list has no users, and
// nobody gets in.
type UsersDirective struct {
	Line     int // in haproxy.cfg, from 1
	Userlist string
	Secret   SecretName
}

// UsersDirectives returns the directives for users of a haproxy.cfg in the order
// of its lines. The error is that of [Directives].
func UsersDirectives(config []byte) ([]UsersDirective, error) {
	found, err := parseDirectives(config)
	return found.users, err
}

// addUsers reads the text of a directive in the given section.
func (o *directives) addUsers(number int, text string, in section) error {
	words := strings.Fields(text)
	if in.keyword != "userlist" {
		return fmt.Errorf("users belong in a userlist section")
	}
	if len(words) != 2 {
		return fmt.Errorf("users needs NAMESPACE/SECRET, and nothing else")
	}
	secret, err := ParseSecretName(words[1])
	if err != nil || !isName(secret.Namespace+secret.Name, "") {
		return fmt.Errorf("%q is not NAMESPACE/SECRET", words[1])
	}
	for i := len(o.users) - 1; i >= 0 && o.users[i].Userlist == in.name; i-- {
		if o.users[i].Secret == secret {
			return fmt.Errorf("userlist %s has the users of %s already", in.name, secret)
		}
	}
	o.users = append(o.users, UsersDirective{number, in.name, secret})
	return nil
}
