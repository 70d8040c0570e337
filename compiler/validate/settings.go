package validate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/config/transport"
	"github.com/hapsnap/hapsnap/internal/scratch"
)

// setting is a value of the configuration that only HAProxy can judge, and a line of haproxy.cfg in
// which only that value could be wrong.
type setting struct {
	path []string
	line string
	// global says that the line belongs into the global section; other lines are put into a frontend of
	// their own.
	global bool
	// unlike replaces HAProxy's message, if it is not empty.
	unlike string
	hint   string
}

// Settings makes HAProxy check the values of a configuration that only HAProxy can check: names of ciphers, log-formats,
// and features that it was built with. Most configurations have none of them, and cost nothing. Without this check, such
// a fault would be reported for a line that a template wrote.
func (c *Checker) Settings(ctx context.Context, cfg config.Config) ([]field.Error, error) {
	var found []field.Error
	// A list is wrong whenever an element is, so that elements are checked first.
	for _, settings := range [][]setting{c.elements(cfg), c.wholes(cfg)} {
		// HAProxy 3.4 does not look at ciphers while it cannot read another line: settings with a fault
		// are left out until no fault is found.
		for {
			settings = slices.DeleteFunc(settings, func(s setting) bool { // a fault was found in it, or in a part of it
				return slices.ContainsFunc(found, func(f field.Error) bool {
					return len(f.Path) >= len(s.path) && slices.Equal(f.Path[:len(s.path)], s.path)
				})
			})
			faults, err := c.judge(ctx, settings)
			if err != nil {
				return nil, err
			}
			if len(faults) == 0 {
				break
			}
			found = append(found, faults...)
		}
	}
	return found, nil
}

const tlsBind = "bind 127.0.0.1:1 ssl crt " + judgeCertificate + " "

// elements returns the settings that stand by themselves.
func (c *Checker) elements(cfg config.Config) []setting {
	var out []setting
	names := func(field, keyword string, list []string) {
		for i, name := range list {
			if transport.IsCipherName(name) {
				out = append(out, setting{
					path: []string{"tls", field, strconv.Itoa(i)}, line: tlsBind + keyword + " " + name,
					unlike: fmt.Sprintf("%q is not known to the OpenSSL of HAProxy %s", name, c.Version),
					hint:   "use OpenSSL's name, or leave it out",
				})
			}
		}
	}
	names("ciphers", "ciphers", cfg.TLS.Ciphers)
	names("cipherSuites", "ciphersuites", cfg.TLS.CipherSuites)
	names("curves", "curves", cfg.TLS.Curves)
	if format := cfg.Log.LineFormat(); format != "" {
		out = append(out, setting{path: []string{"log", "format"}, line: "log-format '" + strings.ReplaceAll(format, "'", `'\''`) + "'"})
	}
	if cfg.HTTPS.HTTP3.Enabled {
		h3 := setting{
			path: []string{"https", "http3", "enabled"}, line: "bind quic4@127.0.0.1:1 ssl crt " + judgeCertificate + " alpn h3",
			unlike: fmt.Sprintf("HAProxy %s cannot do HTTP/3: it is too old, or was built without QUIC", c.Version),
			hint:   "use HAProxy 3.0 or later that was built with USE_QUIC=1, here (--haproxy) and on every instance",
		}
		limited := h3
		limited.line, limited.global = "limited-quic", true
		out = append(out, h3, limited)
	}
	return out
}

// wholes returns lists as they will be written.
func (c *Checker) wholes(cfg config.Config) []setting {
	var out []setting
	lists := func(field, keyword string, list []string) {
		if len(list) > 0 {
			out = append(out, setting{path: []string{"tls", field}, line: tlsBind + keyword + " " + strings.Join(list, ":")})
		}
	}
	lists("ciphers", "ciphers", cfg.TLS.Ciphers)
	lists("cipherSuites", "ciphersuites", cfg.TLS.CipherSuites)
	lists("curves", "curves", cfg.TLS.Curves)
	return out
}

const (
	judgeCertificate = "judge.pem"
	judgeHead        = "defaults main\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n"
)

// judge returns the faults of settings.
func (c *Checker) judge(ctx context.Context, settings []setting) ([]field.Error, error) {
	if len(settings) == 0 {
		return nil, nil
	}
	text, lines := judgement(settings)
	messages, err := c.askAlone(ctx, text)
	if err != nil {
		return nil, err
	}
	var out []field.Error
	for _, m := range messages {
		s, ok := lines[m.Line]
		if !ok || m.Level != "ALERT" {
			continue
		}
		f := field.Error{Path: s.path, Message: "haproxy: " + m.Text, Hint: s.hint}
		if s.unlike != "" {
			f.Message = s.unlike
		}
		if !slices.ContainsFunc(out, func(o field.Error) bool { return slices.Equal(o.Path, f.Path) }) {
			out = append(out, f)
		}
	}
	return out, nil
}

// judgement writes a haproxy.cfg with all settings, and returns which line holds which setting.
func judgement(settings []setting) (text string, lines map[int]setting) {
	var b strings.Builder
	lines = map[int]setting{}
	write := func(s setting) {
		lines[strings.Count(b.String(), "\n")+1] = s
		b.WriteString("    " + s.line + "\n")
	}
	b.WriteString("global\n")
	for _, s := range settings {
		if s.global {
			write(s)
		}
	}
	b.WriteString(judgeHead)
	for i, s := range settings {
		if s.global {
			continue
		}
		fmt.Fprintf(&b, "frontend f%d from main\n    log 127.0.0.1 local0\n", i)
		write(s)
		if !strings.HasPrefix(s.line, "bind ") {
			b.WriteString("    bind 127.0.0.1:1\n")
		}
	}
	return b.String(), lines
}

// askAlone has HAProxy check a complete haproxy.cfg, beside a certificate.
func (c *Checker) askAlone(ctx context.Context, text string) ([]message, error) {
	pem, err := c.keys.get(RSA) // older ciphers need it
	if err != nil {
		return nil, err
	}
	staging, err := scratch.Make("", stagingPrefix)
	if err != nil {
		return nil, fmt.Errorf("make staging directory: %w", err)
	}
	defer staging.Remove()
	dir := staging.Path
	for name, content := range map[string]string{stagedConfig: text, judgeCertificate: string(pem)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("stage %s: %w", name, err)
		}
	}
	said, err := c.check(ctx, dir, []byte(text))
	if err != nil {
		return nil, err
	}
	return parseOutput(said.stderr, func(file string, line int) bool {
		return file == stagedConfig && 1 <= line && line <= 1+strings.Count(text, "\n")
	}), nil
}
