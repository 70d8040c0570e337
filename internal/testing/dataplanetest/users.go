package dataplanetest

import (
	"fmt"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/types"
)

// usersSection is the userlist that the API looks for by default.
const usersSection = "controller"

// userlist is a section with one user, as haproxy.cfg has it.
func userlist(username, password string) string {
	return fmt.Sprintf("\nuserlist %s\n  user %s insecure-password %s\n", usersSection, username, password)
}

// users returns the passwords of the userlist. A text without any is what the API does
// not start with, and dies of when it reads the file again: a whole text was posted, and
// nobody put them into it.
func (d document) users(file string) (map[string]string, error) {
	data, err := d.parser.Get(parser.UserList, usersSection, "user")
	if err != nil {
		return nil, fmt.Errorf("no users configured in %s, error: %w", file, err)
	}
	list, ok := data.([]types.User)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("no users configured in %s", file)
	}
	users := make(map[string]string, len(list))
	for _, u := range list {
		users[u.Name] = u.Password
	}
	return users, nil
}
