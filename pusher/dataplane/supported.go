package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The oldest versions that are worked with. Of the API only the major version 3 is.
var (
	oldestHAProxy = release{2, 6}
	oldestAPI     = release{3, 2}
)

// UnsupportedError is what is at the other end and cannot be worked with.
type UnsupportedError struct{ Message string }

// Error implements error.
func (e UnsupportedError) Error() string { return e.Message }

// Supported asks for the version of the API, and returns an [UnsupportedError] if it
// is not one that this package was made for.
func (c *Client) Supported(ctx context.Context) error {
	info, err := c.Info(ctx)
	if errors.Is(err, ErrNotFound) {
		return UnsupportedError{fmt.Sprintf("there is no Dataplane API of version 3: want %s or a later 3", oldestAPI)}
	}
	if err != nil {
		return err
	}
	return checkAPI(info.Version)
}

// checkAPI judges a version such as "v3.2.5 1a2b3c4". A build from source has no
// number; it answers calls of version 3, which has to do.
func checkAPI(version string) error {
	v, ok := parseRelease(version)
	if ok && (v.major != oldestAPI.major || v.before(oldestAPI)) {
		return UnsupportedError{fmt.Sprintf("the Dataplane API is %s: want %s or a later 3", strings.TrimSpace(version), oldestAPI)}
	}
	return nil
}

// CheckHAProxy returns an [UnsupportedError] if the version, such as "3.2.0-1a2b3c4",
// is too old, and nil for one that says nothing.
func CheckHAProxy(version string) error {
	if v, ok := parseRelease(version); ok && v.before(oldestHAProxy) {
		return UnsupportedError{fmt.Sprintf("HAProxy is %s: want %s or later", strings.TrimSpace(version), oldestHAProxy)}
	}
	return nil
}

// release is what comes first in a version.
type release struct{ major, minor int }

// String implements fmt.Stringer.
func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(o release) bool {
	return r.major < o.major || (r.major == o.major && r.minor < o.minor)
}

// parseRelease reads "v3.2.5 1a2b3c4", "2.6.12-1" and their like.
func parseRelease(version string) (release, bool) {
	major, rest, dotted := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(rest[:end])
	return release{x, y}, dotted && errX == nil && errY == nil
}
