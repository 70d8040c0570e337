package htpasswd

import (
	"fmt"
	"strings"
	"time"
)

// User is somebody who may pass with a password, of which only the hash is known.
type User struct {
	Name string
	Hash string // of crypt(3)
}

// String returns the name: the hash is for HAProxy only.
func (u User) String() string { return u.Name }

// Problem is a line of an htpasswd file that is left out, or that is costly.
// It holds neither a hash nor any text that may be a password.
//
//nolint:errname // It is found beside users, not returned as an error.
type Problem struct {
	Line    int    // from 1
	User    string // "" if it cannot be told
	Message string // follows the user's name: "has no hash that HAProxy can check"
	Hint    string
	// Usable is set where the user can log in all the same.
	Usable bool
}

// Error returns "line 3: user alice has …", or without the user.
func (p Problem) Error() string {
	if p.User == "" {
		return fmt.Sprintf("line %d %s", p.Line, p.Message)
	}
	return fmt.Sprintf("line %d: user %s %s", p.Line, p.User, p.Message)
}

// Parse reads lines of NAME:HASH, as htpasswd writes them and ingress
// controllers expect them under the key auth of a Secret. What follows a second
// colon, empty lines and those that begin with # mean nothing.
//
// HAProxy checks passwords with crypt(3), so a hash is one that Debian's libxcrypt
// knows: bcrypt, SHA-256 and SHA-512 crypt, yescrypt, MD5 crypt ($1$), or the
// traditional 13 characters. A user with any other hash, with a name that is not
// printable ASCII or holds a space, '#', '$', a quotation mark or a backslash, or
// whose name was there already, is left out, and so is one whose hash takes too
// long to check. The others are returned in order.
func Parse(data []byte) ([]User, []Problem) {
	p := parser{seen: map[string]bool{}}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		text := strings.TrimRight(line, " \t\r\v\f\n")
		if text != "" && text[0] != '#' {
			p.line(number, text)
		}
	}
	return p.users, p.problems
}

type parser struct {
	seen     map[string]bool
	cost     time.Duration // of all users so far
	users    []User
	problems []Problem
}

func (p *parser) line(number int, text string) {
	name, rest, ok := strings.Cut(text, ":")
	hash, _, _ := strings.Cut(rest, ":")
	problem := Problem{Line: number, User: name}
	var cost time.Duration
	var err error
	switch {
	case !ok:
		problem = Problem{Line: number, Message: "is not NAME:HASH", Hint: hashHint}
	case !isUserName(name):
		problem = Problem{
			Line: number, Message: "has a user name that HAProxy cannot be told",
			Hint: "use up to 128 letters, digits and signs of ASCII, without spaces, quotation marks, # $ and \\",
		}
	case p.seen[name]:
		problem.Message, problem.Hint = "is there twice; the first one counts", "remove one of the lines"
	default:
		p.seen[name] = true
		if cost, err = hashCost(hash); err != nil {
			problem.Message, problem.Hint = err.Error(), hashHint
		} else {
			problem = p.admit(problem, User{name, hash}, cost)
		}
	}
	if problem.Message != "" {
		p.problems = append(p.problems, problem)
	}
}

// admit takes a user, if there is time for another hash. HAProxy tries each one
// when it loads the configuration.
func (p *parser) admit(problem Problem, u User, cost time.Duration) Problem {
	if p.cost+cost > maxHashes {
		problem.Message = fmt.Sprintf("is one too many: HAProxy would take more than %s to load all these hashes", maxHashes)
		problem.Hint = "use hashes that are less costly, such as of htpasswd -B"
		return problem
	}
	p.cost += cost
	p.users = append(p.users, u)
	if cost >= costlyHash {
		problem.Usable = true
		problem.Message = fmt.Sprintf("has a hash that takes about %s to check, at every request, and holds up others meanwhile", roughly(cost))
		problem.Hint = "a long random password is safe with a cheap hash: htpasswd -B -C 5, or mkpasswd -m sha-256"
	}
	return problem
}

// maxUserName is more than any name needs.
const maxUserName = 128

// isUserName reports whether a name is one word of haproxy.cfg as it stands.
func isUserName(name string) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] >= 0x7f || strings.IndexByte(`"'#$\:`, name[i]) >= 0 {
			return false
		}
	}
	return name != "" && len(name) <= maxUserName
}

// Check keeps from the configuration what Parse would not return.
func Check(u User) error {
	if !isUserName(u.Name) {
		return fmt.Errorf("a user name is not one word")
	}
	if _, err := hashCost(u.Hash); err != nil {
		return fmt.Errorf("user %s %w", u.Name, err)
	}
	return nil
}
