package preflight

import (
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// statsSockets returns the paths of the stats sockets in haproxy.cfg.
func statsSockets(config []byte) map[string]bool {
	found := map[string]bool{}
	for line := range haproxycfg.Lines(config) {
		if words := line.Texts(); len(words) >= 3 && words[0] == "stats" && words[1] == "socket" {
			path := words[2]
			if at := strings.LastIndexByte(path, '@'); at >= 0 && !strings.HasPrefix(path, "/") {
				path = path[at+1:] // unix@/run/…
			}
			found[path] = true
		}
	}
	return found
}

// defaultUserlist is where the API looks for users that are not in its own file.
const defaultUserlist = "controller"

// endangeredUsers returns the name of the userlist in haproxy.cfg that the API may take
// its users from, "" for none. In a configuration of ours they are those of an Ingress. A
// password in the clear that is another one shows that the API has the user from elsewhere.
func endangeredUsers(config []byte, username, password string) string {
	endangered := ""
	for section := range haproxycfg.Sections(config) {
		for _, line := range section.Lines {
			words := line.Texts()
			switch {
			case len(words) < 2:
			case section.Keyword == "global" && words[0] == "node" && ours(words[1]):
				return ""
			case section.Keyword != "userlist" || section.Name == "" || words[0] != "user" || words[1] != username:
			case len(words) >= 4 && words[2] == "insecure-password" && words[3] != password:
			case endangered == "" || section.Name == defaultUserlist:
				endangered = section.Name
			}
		}
	}
	return endangered
}

func ours(node string) bool {
	_, _, err := bind.ParseNode(node)
	return err == nil
}
