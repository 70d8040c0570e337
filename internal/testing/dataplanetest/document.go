package dataplanetest

import (
	"fmt"
	"strings"
	"sync"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/options"
	"github.com/haproxytech/client-native/v6/config-parser/types"
)

// document is a configuration as the API holds it: taken apart and put together
// again by the API's own library. What that library loses is lost here too: all
// from a line of 65,536 bytes on, all but the last of sections with one name, and
// the sense of .if blocks.
type document struct{ parser parser.Parser }

// parsing is held while the library reads a text: it keeps the name of the current
// section of defaults in a variable of its package.
var parsing sync.Mutex

func parseDocument(text string) (document, error) {
	parsing.Lock()
	defer parsing.Unlock()
	p, err := parser.New(options.UseMd5Hash, options.NoNamedDefaultsFrom, options.String(text))
	if err != nil {
		return document{}, fmt.Errorf("read configuration: %w", err)
	}
	return document{p}, nil
}

// render returns the text in normal form, headed by its hash and version.
func (d document) render() (string, error) {
	text, err := d.parser.StringWithHash()
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return text, nil
}

// body returns the text without the line of the hash.
func (d document) body() string { return d.parser.String() }

// versionLine is where the version lives; a text without one has version 1.
func (d document) versionLine() *types.ConfigVersion {
	data, err := d.parser.Get(parser.Comments, parser.CommentsSectionName, "# _version", true)
	if err != nil {
		return &types.ConfigVersion{Value: 1}
	}
	return data.(*types.ConfigVersion)
}

func (d document) version() int64    { return d.versionLine().Value }
func (d document) incrementVersion() { d.versionLine().Value++ }

// insertDisclaimer adds the two comments that the API keeps in its memory of a
// file it has not written itself. They reach the disk with a structured change
// and vanish with a raw post.
func (d document) insertDisclaimer() {
	lines := []string{"Dataplaneapi managed File", "changing file directly can cause a conflict if dataplaneapi is running"}
	data, err := d.parser.Get(parser.Comments, parser.CommentsSectionName, "#")
	if comments, ok := data.([]types.Comments); err == nil && ok && len(comments) > 0 && comments[0].Value == lines[0] {
		return
	}
	for i, line := range lines {
		_ = d.parser.Insert(parser.Comments, parser.CommentsSectionName, "#", types.Comments{Value: line}, i)
	}
}

// sections lists the names of a type of section, sorted.
func (d document) sections(kind parser.Section) []string {
	names, err := d.parser.SectionsGet(kind)
	if err != nil {
		return nil
	}
	return names
}

// servers lists the server lines of a backend, in order.
func (d document) servers(backend string) []types.Server {
	data, err := d.parser.Get(parser.Backends, backend, "server", false)
	if err != nil {
		return nil
	}
	return data.([]types.Server)
}

func (d document) setServer(backend string, index int, s types.Server) error {
	return d.parser.Set(parser.Backends, backend, "server", s, index)
}

func (d document) addServer(backend string, s types.Server) error {
	return d.parser.Insert(parser.Backends, backend, "server", s)
}

// dropVersion removes the version lines that a text brings along.
func dropVersion(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# _version") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// fileChecksum returns what the file says is its hash.
func fileChecksum(text string) string {
	for line := range strings.Lines(text) {
		if hash, ok := strings.CutPrefix(line, "# _md5hash="); ok {
			return strings.TrimSpace(hash)
		}
	}
	return ""
}

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
