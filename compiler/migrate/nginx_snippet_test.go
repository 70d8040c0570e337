package migrate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A snippet that only edits headers becomes options.
func TestReadSnippet(t *testing.T) {
	for text, want := range map[string]struct {
		requests, answers, host, err string
	}{
		`more_set_headers "X-Frame-Options: DENY";`:                                                                  {answers: "set X-Frame-Options DENY"},
		"# why\nmore_set_headers 'A: b; c' \"B:  d e\";\n  more_clear_headers Server X-Powered-By;":                  {answers: "set A b; c|set B d e|remove Server|remove X-Powered-By"},
		`more_set_headers "Server:";`:                                                                                {answers: "remove Server"},
		`more_set_input_headers "X-Env: prod"; more_clear_input_headers A;`:                                          {requests: "set X-Env prod|remove A"},
		`add_header X-A "say \"a\"" always; proxy_hide_header X-A;`:                                                  {answers: `remove X-A|add X-A say "a"`},
		`proxy_set_header X-Env prod;proxy_set_header Accept-Encoding "";`:                                           {requests: "set X-Env prod|remove Accept-Encoding"},
		`proxy_set_header Host internal.example;`:                                                                    {host: "internal.example"},
		"proxy_http_version 1.1;\nproxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection \"upgrade\";": {},
		`proxy_set_header X-Real-Host $host; grpc_set_header X-A ${remote_addr};`:                                    {requests: "copy X-Real-Host host|copy X-A client-address"},
		`more_set_headers "X-Id: $req_id" "X-Of: $http_x_from";`:                                                     {answers: "copy X-Id request-id|copy X-Of header x-from"},
		`proxy_set_header X-Time $msec;`:                                                                             {err: `proxy_set_header holds the variable "$msec"`},
		`proxy_set_header X-Of "$host:$server_port";`:                                                                {err: `proxy_set_header holds the variable "$host:$server_port"`},
		`proxy_set_header Host $http_x_host;`:                                                                        {err: `proxy_set_header holds the variable "$http_x_host"`},
		`more_set_headers "$host: x";`:                                                                               {err: `more_set_headers holds the variable "$host: x"`},
		`add_header X-A $host always;`:                                                                               {err: `add_header holds the variable "$host"`},
		`more_set_headers -s 404 "X: y";`:                                                                            {err: "more_set_headers has the option -s"},
		`more_clear_headers "X-*";`:                                                                                  {err: "more_clear_headers names headers by a wildcard, X-*"},
		`deny all;`:                                                                                                  {err: "deny is no edit of a header"},
		`more_set_headers "A: b"; return 403;`:                                                                       {err: "return is no edit of a header"},
		`if ($http_x) { add_header A b; }`:                                                                           {err: "if { opens a block"},
		`location /x{ deny all; }`:                                                                                   {err: "location { opens a block"},
		`add_header A b always; } location / { return 1`:                                                             {err: "{ opens a block"},
		`more_set_headers "A: b"`:                                                                                    {err: "more_set_headers has no ; at its end"},
		`more_set_headers "A: b;`:                                                                                    {err: "a quote is not closed"},
		`more_set_headers "A: b"x;`:                                                                                  {err: `"A: b" is not followed by a space`},
		`more_set_headers;`:                                                                                          {err: "more_set_headers names no header"},
		`more_set_headers "A: b\nB: c";`:                                                                             {err: "a word holds a backslash"},
		"# nothing":                                                                                                  {err: "holds no directive"},
		`proxy_set_header A;`:                                                                                        {err: "proxy_set_header does not have a name and a value"},
		`add_header A b sometimes;`:                                                                                  {err: "add_header does not have a name and a value"},
	} {
		got, err := readSnippet(text)
		said := ""
		if err != nil {
			said, got = err.Error(), snippetEdits{}
		}
		if diff := cmp.Diff([]string{want.requests, want.answers, want.host, want.err},
			[]string{strings.Join(got.requests, "|"), strings.Join(got.answers, "|"), got.host, said}); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
}

func FuzzReadSnippet(f *testing.F) {
	f.Add(`more_set_headers "A: b"; add_header 'x' y always;`)
	f.Fuzz(func(t *testing.T, text string) {
		edits, err := readSnippet(text)
		if err == nil && strings.Contains(strings.Join(append(edits.answers, edits.requests...), ""), "$") {
			t.Errorf("%q: a variable became a value", text)
		}
	})
}
