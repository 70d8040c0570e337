// Package htpasswd reads lines of NAME:HASH, and says which of the hashes HAProxy can check, and how long each
// check takes. See [Parse].
//
// HAProxy checks a password with crypt(3) on the thread of the connection, so a costly
// hash holds up other connections. No [Problem] holds any part of a hash.
package htpasswd

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// User is a user who may log in with a password. Only the hash of the password is known.
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
	User    string // "" if it is not known
	Message string // follows the user's name: "has no hash that HAProxy can check"
	Hint    string
	// Usable is set if the user can log in all the same.
	Usable bool
}

// Error returns "line 3: user alice has …", or without the user.
func (p Problem) Error() string {
	if p.User == "" {
		return fmt.Sprintf("line %d %s", p.Line, p.Message)
	}
	return fmt.Sprintf("line %d: user %s %s", p.Line, p.User, p.Message)
}

// Parse reads lines of NAME:HASH, as htpasswd writes them and ingress controllers expect them under the key
// auth of a Secret. It ignores text after a second colon, empty lines, and lines that begin with #.
//
// HAProxy checks passwords with crypt(3), so Parse accepts the hashes that Debian's libxcrypt knows: bcrypt,
// SHA-256 and SHA-512 crypt, yescrypt, MD5 crypt ($1$), and the traditional 13 characters. It leaves out a user
// with any other hash, and one whose hash takes too long to check. It also leaves out a user whose name
// occurred before, is not printable ASCII, or holds a space, '#', '$', a quotation mark or a backslash. It
// returns the others in order. Of very many problems it returns the first, and the number of the others.
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
	if p.more > 0 {
		p.problems = append(p.problems, Problem{Line: p.last, Message: fmt.Sprintf("is the last of %d more that have problems", p.more)})
	}
	return p.users, p.problems
}

// Cost returns how long HAProxy takes to load the hashes of users that [Parse] returned.
func Cost(users []User) (cost time.Duration) {
	for _, u := range users {
		c, _ := hashCost(u.Hash)
		cost += c
	}
	return cost
}

// mostProblems is how many problems of a file are told one by one: a Secret has room for 300,000 lines.
const mostProblems = 100

type parser struct {
	seen     map[string]bool
	cost     time.Duration // of all users so far
	users    []User
	problems []Problem
	more     int // lines with problems that are not told
	last     int // the last of them
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
	switch {
	case problem.Message == "":
	case len(p.problems) < mostProblems:
		p.problems = append(p.problems, problem)
	default:
		p.more, p.last = p.more+1, number
	}
}

// admit accepts a user if there is time for another hash. HAProxy tries each hash when it loads the
// configuration.
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

// Check refuses what Parse would not return, so that it does not reach the configuration.
func Check(u User) error {
	if !isUserName(u.Name) {
		return fmt.Errorf("a user name is not one word")
	}
	if _, err := hashCost(u.Hash); err != nil {
		return fmt.Errorf("user %s %w", u.Name, err)
	}
	return nil
}

// HAProxy checks a password with crypt(3) on the thread of the connection, at
// each request, and tries each hash once when it loads the configuration. The
// times below were measured with Debian's libxcrypt on one thread:
//
//	$1$                     0.3 ms    3,300 a second
//	$5$, 5,000 rounds       4.4 ms      230
//	$6$, 5,000 rounds       2.6 ms      390
//	$2y$, cost 5            2.3 ms      440
//	$2y$, cost 8             20 ms       50
//	$2y$, cost 10            84 ms       12
//	$2y$, cost 12           400 ms        2
//	$y$j7T                  5.2 ms      190
//	$y$j9T (mkpasswd)        26 ms       39
const (
	// costlyHash is the time from which on a hash gets a warning.
	costlyHash = 10 * time.Millisecond
	// maxHash is the longest time that a hash may take: more would hold up all connections of a thread, and the
	// loading of the configuration.
	maxHash = 500 * time.Millisecond
	// maxHashes is the longest time that all hashes of a Secret may take together. Package live has those of
	// namespaces.
	maxHashes = 5 * time.Second
)

// hashForm is a kind of hash that HAProxy checks: its form, and a function that says how long a check takes
// from what the form's groups matched.
type hashForm struct {
	form *regexp.Regexp
	cost func(groups []string) time.Duration
}

const hashByte = `[./0-9A-Za-z]`

var hashForms = []hashForm{
	{regexp.MustCompile(`^\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$` + hashByte + `{53}$`), bcryptCost},
	{regexp.MustCompile(`^\$5\$(?:rounds=([1-9][0-9]{3,8})\$)?` + hashByte + `{0,16}\$` + hashByte + `{43}$`), roundsCost(880 * time.Nanosecond)},
	{regexp.MustCompile(`^\$6\$(?:rounds=([1-9][0-9]{3,8})\$)?` + hashByte + `{0,16}\$` + hashByte + `{86}$`), roundsCost(580 * time.Nanosecond)},
	{regexp.MustCompile(`^\$y\$j([./0-9A-Z])([./0-9A-Za-j])\$` + hashByte + `{0,86}\$` + hashByte + `{43}$`), yescryptCost},
	{regexp.MustCompile(`^\$1\$` + hashByte + `{0,8}\$` + hashByte + `{22}$`), fixedCost(300 * time.Microsecond)},
	{regexp.MustCompile(`^` + hashByte + `{13}$`), fixedCost(10 * time.Microsecond)},
}

func fixedCost(d time.Duration) func([]string) time.Duration {
	return func([]string) time.Duration { return d }
}

// bcryptCost doubles with each step.
func bcryptCost(groups []string) time.Duration {
	cost, _ := strconv.Atoi(groups[1])
	return 80 * time.Microsecond << cost
}

func roundsCost(each time.Duration) func([]string) time.Duration {
	return func(groups []string) time.Duration {
		rounds, err := strconv.Atoi(groups[1])
		if err != nil {
			rounds = 5000 // the default
		}
		return time.Duration(rounds) * each
	}
}

// yescryptCost reads the block count, a power of two, and the block size: time
// is linear in their product.
func yescryptCost(groups []string) time.Duration {
	n, r := hashDigit(groups[1])+1, hashDigit(groups[2])+1
	return time.Duration(min(200*math.Pow(2, float64(n))*float64(r), float64(time.Hour)))
}

// hashDigit returns the number that a byte stands for in a hash.
func hashDigit(s string) int {
	return strings.Index("./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", s)
}

// The reasons why a hash is refused, and what to do instead.
const hashHint = "make one with htpasswd -B or mkpasswd -m sha-256"

var (
	errApacheHash = errors.New("has an Apache hash ($apr1$), which HAProxy cannot check")
	errSHAHash    = errors.New("has a hash of the {SHA} kind, which HAProxy cannot check")
	errNoHash     = errors.New("has no hash that HAProxy can check")
)

// hashCost returns how long HAProxy takes to check a password against the hash,
// or why it cannot. The error holds nothing of the hash.
func hashCost(hash string) (time.Duration, error) {
	for _, f := range hashForms {
		if groups := f.form.FindStringSubmatch(hash); groups != nil {
			cost := f.cost(groups)
			if cost > maxHash {
				return cost, fmt.Errorf("has a hash that takes %s to check, and at most %s are possible", roughly(cost), maxHash)
			}
			return cost, nil
		}
	}
	switch {
	case strings.HasPrefix(hash, "$apr1$"):
		return 0, errApacheHash
	case strings.HasPrefix(hash, "{S"): // {SHA}, {SSHA}
		return 0, errSHAHash
	}
	return 0, errNoHash
}

// roughly shows a time with two digits or so.
func roughly(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Millisecond)
}
