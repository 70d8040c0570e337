package routingtest

import (
	"strings"
	"testing"
)

// step is a request and the expected answer: an echo server, or a status.
type step struct {
	host, target string
	want         string
}

// row is a row of the table.
type row struct {
	name      string
	ingresses []ingress
	extra     string // more manifests
	steps     []step
}

// one returns a single Ingress with rules.
func one(rules ...string) []ingress { return []ingress{{rules: rules}} }

// ask returns steps for several targets of any host with one expected answer.
func ask(want string, targets ...string) []step {
	var out []step
	for _, target := range targets {
		out = append(out, step{"any.example", target, want})
	}
	return out
}

// hosts returns steps for several hosts with one expected answer.
func hosts(want string, names ...string) []step {
	var out []step
	for _, name := range names {
		out = append(out, step{name, "/", want})
	}
	return out
}

func join(steps ...[]step) []step {
	var out []step
	for _, s := range steps {
		out = append(out, s...)
	}
	return out
}

var pathRows = []row{
	{"row_01_exact", one("- E /foo a"), "", ask("a", "/foo")},
	{"row_02_exact_with_slash", one("- E /foo a"), "", ask("404", "/foo/")},
	{"row_03_exact_case", one("- E /foo a"), "", ask("404", "/FOO")},
	{"row_04_exact_query", one("- E /foo a"), "", ask("a", "/foo?x=/foo/")},
	{"row_05_exact_slash_missing", one("- E /foo/ a"), "", ask("404", "/foo")},
	{"row_06_exact_slash", one("- E /foo/ a"), "", ask("a", "/foo/")},
	{"row_07_prefix", one("- P /foo a"), "", ask("a", "/foo", "/foo/", "/foo/bar", "/foo?x")},
	{"row_08_prefix_no_element", one("- P /foo a"), "", ask("404", "/foobar", "/FOO", "/")},
	{"row_09_prefix_trailing_slash", one("- P /foo/ a"), "", ask("a", "/foo", "/foo/", "/foo/x")},
	{"row_10_longest_prefix", one("- P /aaa/bbb a", "- P /aaa b"), "", ask("a", "/aaa/bbb", "/aaa/bbb/ccc")},
	{"row_11_shorter_prefix", one("- P /aaa/bbb a", "- P /aaa b"), "", ask("b", "/aaa/ccc", "/aaa/bbbxyz")},
	{"row_12_no_prefix", one("- P /aaa/bbb a", "- P /aaa b"), "", ask("404", "/aaaccc")},
	{"row_13_prefix_by_element", one("- P /aaa/bb a"), "", ask("404", "/aaa/bbb")},
	{"row_14_root_prefix", one("- P / a"), "", ask("a", "/", "/x", "/x/y?z", "//", "/%2e%2e/")},
	{"row_15_root_and_prefix", one("- P / a", "- P /foo b"), "", ask("a", "/bar", "/foobar")},
	{"row_16_exact_before_prefix", one("- E /foo a", "- P /foo b"), "", join(ask("a", "/foo"), ask("b", "/foo/x", "/foo/"))},
	{"row_17_exact_root", one("- E / a", "- P / b"), "", join(ask("a", "/", "/?a=b"), ask("b", "/x"))},
	{"row_18_longest_of_two_ingresses", []ingress{{name: "x", rules: []string{"- P /foo a"}}, {name: "y", age: 1, rules: []string{"- P /foo/bar b"}}}, "", ask("b", "/foo/bar", "/foo/bar/x")},
	{"row_18_other_order", []ingress{{name: "x", rules: []string{"- P /foo/bar b"}}, {name: "y", age: 1, rules: []string{"- P /foo a"}}}, "", join(ask("b", "/foo/bar"), ask("a", "/foo/x"))},
	{"row_55_escapes_are_compared_decoded_once", one("- P /a%20b a", "- P /caf%C3%A9 b"), "", join(ask("a", "/a%20b/c"), ask("404", "/a%2520b"), ask("b", "/caf%c3%a9"))},
	{"row_56_normalisation", one("- P /aaa a", "- E /Exact/ b"), "", join(ask("a", "/aaa//bbb", "//aaa", "/x/../aaa", "/%61aa"), ask("404", "/aaa/../x"), ask("b", "/Exact//", "/%45xact/.", "/Exact/x/.."))},
	{"row_57_literal", one("- P /a.b+c( a"), "", join(ask("a", "/a.b+c("), ask("404", "/aXb+c("))},
	{"row_59_long_path", one("- P /" + strings.Repeat("x", 2000) + " a"), "", ask("a", "/"+strings.Repeat("x", 2000)+"/y")},
	{"row_63_implementation_specific", one("- I /foo a"), "", join(ask("a", "/foo", "/foo/x"), ask("404", "/foobar"))},
	{"row_64_empty_path", one("- I - a", "- E /x b"), "", join(ask("a", "/", "/y", "/x/y?z", "//"), ask("b", "/x"))},
}

var hostRows = []row{
	{"row_19_host", one("foo.bar.com P / a"), "", hosts("a", "foo.bar.com")},
	{"row_20_host_case", one("foo.bar.com P / a"), "", hosts("a", "FOO.Bar.com")},
	{"row_21_host_port", one("foo.bar.com P / a"), "", hosts("a", "foo.bar.com:8080")},
	{"row_22_host_trailing_dot", one("foo.bar.com P / a"), "", hosts("a", "foo.bar.com.", "foo.bar.com.:80")},
	{"row_23_other_host", one("foo.bar.com P / a"), "", hosts("404", "sub.bar.com", "bar.com", "x.foo.bar.com")},
	{"row_24_wildcard", one("*.foo.com P / a"), "", hosts("a", "bar.foo.com", "BAR.foo.com:80")},
	{"row_25_wildcard_is_one_label", one("*.foo.com P / a"), "", hosts("404", "baz.bar.foo.com")},
	{"row_26_wildcard_is_a_label", one("*.foo.com P / a"), "", hosts("404", "foo.com")},
	{"row_26_wildcard_is_no_empty_label", []ingress{{rules: []string{"*.foo.com P / a", "- P /x b"}}}, "", []step{{".foo.com", "/", "404"}, {".foo.com:80", "/x", "b"}, {".foo.com.", "/x", "b"}}},
	{"row_27_host_before_wildcard", one("*.foo.com P / a", "a.foo.com P / b"), "", join(hosts("b", "a.foo.com"), hosts("a", "b.foo.com"))},
	{"row_28_specific_host_owns", one("*.foo.com P / a", "a.foo.com P /x b"), "", []step{{"a.foo.com", "/y", "404"}, {"a.foo.com", "/x", "b"}, {"b.foo.com", "/x", "a"}}},
	{"row_29_known_host_owns", one("- P /any a", "h1.example P /x b"), "", []step{{"h1.example", "/any", "404"}, {"h1.example", "/x", "b"}}},
	{"row_30_hostless", one("- P /any a", "h1.example P /x b"), "", []step{{"unknown.host", "/any", "a"}, {"[::1]:80", "/any", "a"}, {"127.0.0.1", "/any", "a"}}},
	{"row_62_odd_hosts", one("xn--bcher-kva.example P / a"), "", hosts("a", "xn--bcher-kva.example")},
	{"row_65_host_without_paths", one("h.example", "*.w.example", "- P / b"), "", []step{{"h.example", "/", "404"}, {"h.example", "/any", "404"}, {"x.w.example", "/", "404"}, {"other.example", "/any", "b"}}},
	{"row_65_then_default", []ingress{{rules: []string{"h.example", "- P /any b"}, fallback: "c"}}, "", []step{{"h.example", "/any", "c"}, {"other.example", "/any", "b"}}},
	{"row_69_host_is_no_path", one("sub.example.com P / a", "- P /example.com b"), "", []step{{"sub.example.com", "/example.com", "a"}, {"other", "/example.com", "b"}}},
	{"row_70_separator", one("h P /x a", "- P /h b"), "", []step{{"h", "/x", "a"}, {"h|", "/x", "404"}, {"h", "/h", "404"}}},
}

var backendRows = []row{
	{"row_32_default_of_rules", []ingress{{rules: []string{"h.example P /x a"}, fallback: "b"}}, "", []step{{"h.example", "/y", "b"}, {"other.example", "/x", "b"}, {"h.example", "/x", "a"}}},
	{"row_33_older_default", []ingress{{name: "y", age: 1, fallback: "b"}, {name: "z", fallback: "c"}}, "", ask("c", "/")},
	{"row_34_nothing", nil, "", ask("404", "/", "/x")},
	{"row_35_older_wins", []ingress{{name: "x", age: 1, rules: []string{"- P /x a"}}, {name: "y", rules: []string{"- P /x b"}}}, "", ask("b", "/x")},
	{"row_35_then_by_name", []ingress{{name: "y", rules: []string{"- P /x b"}}, {name: "x", rules: []string{"- P /x a", "- P /z a"}}}, "", ask("a", "/x", "/z")},
	{"row_36_namespaces_merge", []ingress{{rules: []string{"h.example P /x a"}}, {namespace: "other", rules: []string{"h.example P /y e"}}}, "", []step{{"h.example", "/x", "a"}, {"h.example", "/y", "e"}}},
	{"row_37_no_such_service", []ingress{{rules: []string{"- P /x gone", "- P /y a"}, fallback: "b"}}, "", join(ask("503", "/x", "/x/y"), ask("a", "/y"), ask("b", "/z"))},
	{"row_38_no_endpoints", []ingress{{rules: []string{"- P /x empty", "- P / a"}, fallback: "b"}}, "", join(ask("503", "/x"), ask("a", "/y"))},
	{"row_44_other_class", []ingress{{class: "nginx", rules: []string{"- P / a"}}}, "", ask("404", "/")},
	{"row_45_no_class", []ingress{{class: "none", rules: []string{"- P / a"}}}, "", ask("404", "/")},
	{"row_46_default_class", []ingress{{class: "none", rules: []string{"- P / a"}}}, defaultClass, ask("a", "/")},
	{"row_47_annotation_wins", []ingress{{class: "nginx", annotations: "kubernetes.io/ingress.class: hapsnap", rules: []string{"- P / a"}}}, "", ask("a", "/")},
}

const defaultClass = `---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: edge, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: hapsnap.dev/ingress-controller}
`

// Each request is sent over HTTP/1.1, and over HTTP/2 with TLS.
func TestRows(t *testing.T) {
	t.Parallel()
	services := common(t)
	for _, rows := range [][]row{pathRows, hostRows, backendRows} {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				e := start(t, services+r.extra+all(r.ingresses))
				for _, s := range r.steps {
					if got := e.http11(t, "GET", s.host, s.target); got != s.want {
						t.Errorf("HTTP/1.1 %s%s: %s, want %s", s.host, s.target, got, s.want)
					}
					if strings.Contains(s.host, "|") {
						continue // no client sends this over HTTP/2
					}
					if got := e.http2(t, "GET", s.host, s.target); got != s.want {
						t.Errorf("HTTP/2 %s%s: %s, want %s", s.host, s.target, got, s.want)
					}
				}
			})
		}
	}
}

func all(ingresses []ingress) string {
	var b strings.Builder
	for _, i := range ingresses {
		b.WriteString(i.yaml())
	}
	return b.String()
}
