package dataplanetest

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// maxPayload is how many bytes of entries the API adds to a map with one command.
const maxPayload = 8192

// addEntries adds entries to a map of the worker as the API does: with one command, or,
// where they are too long for that, as a new version of the map. That has these
// entries only, so all others are gone.
func (a *api) addEntries(ctx context.Context, path string, entries []mapEntry) error {
	parts, long := payloads(entries)
	if !long {
		return a.addPayload(ctx, path, parts[0])
	}
	out, err := a.onMap(ctx, http.StatusBadRequest, "prepare map "+path)
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(out, ": ")
	at := "@" + strings.TrimSpace(version) + " " + path
	for _, part := range parts {
		if err := a.addPayload(ctx, at, part); err != nil {
			return err
		}
	}
	_, err = a.onMap(ctx, http.StatusBadRequest, "commit map "+at)
	return err
}

func (a *api) addPayload(ctx context.Context, where, payload string) error {
	_, err := a.onMap(ctx, http.StatusBadRequest, fmt.Sprintf("add map %s <<\n%s", where, strings.TrimSuffix(payload, "\n")))
	return err
}

// payloads shares entries out over commands, and reports whether there are too many for
// one. The entry that does not fit opens the next payload, if another one follows it;
// the last one of all is lost.
func payloads(entries []mapEntry) (parts []string, long bool) {
	var part, over string
	for _, e := range entries {
		line := e.Key + " " + e.Value + "\n"
		if next := part + over + line; len(next) <= maxPayload {
			part, over = next, ""
			continue
		}
		if part == "" {
			part = line
		}
		parts, long = append(parts, part), true
		part, over = "", line
	}
	if part != "" {
		parts = append(parts, part)
	}
	return parts, long
}

// keyInPath is what may stand in a path for the key of an entry, since 3.4.
var keyInPath = regexp.MustCompile(`^[^\r\n<>*;$#&{}"]+$`)

// checkKey refuses the key in the path of a request as 3.4 does.
func (a *api) checkKey(key string) error {
	if a.version == V34 && !keyInPath.MatchString(key) {
		return failf(http.StatusBadRequest, "id in path: string doesn't match the regular expression %q", keyInPath)
	}
	return nil
}

// checkCommands refuses entries of which the API makes no command since 3.4, where they
// could hold another one.
func (a *api) checkCommands(entries ...mapEntry) error {
	for _, e := range entries {
		if a.version == V34 && strings.Contains(e.Key+e.Value, ";") {
			return failf(http.StatusBadRequest, "%s invalid character found in runtime command general error", a.haproxy.socket)
		}
	}
	return nil
}
