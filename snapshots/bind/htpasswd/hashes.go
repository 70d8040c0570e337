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
	// costlyHash is from when on a hash is worth a warning.
	costlyHash = 10 * time.Millisecond
	// maxHash is what a hash may take: more would hold up all connections of a
	// thread, and the loading of the configuration.
	maxHash = 500 * time.Millisecond
	// maxHashes is what all hashes of a Secret may take together.
	maxHashes = 5 * time.Second
)

// hashForm is a kind of hash that HAProxy checks: what it looks like, and how
// long a check takes by what its groups matched.
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
