package agent

import (
	"testing"

	"github.com/hapsnap/hapsnap/waf/policy"
)

// BenchmarkInspect is what one request of a browser takes.
func BenchmarkInspect(b *testing.B) {
	const headers = "host: example.com\r\nuser-agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"accept: text/html,application/xhtml+xml\r\naccept-language: en-US,en;q=0.9\r\ncookie: session=0123456789abcdef; theme=dark\r\n"
	const form = headers + "content-type: application/x-www-form-urlencoded\r\n"
	for name, m := range map[string]message{
		"get":  question("GET", "/shop/list?page=2&sort=price&q=red+shoes", "HTTP/1.1", headers, ""),
		"form": question("POST", "/login", "HTTP/1.1", form, "user=jane%40example.com&password=correct+horse"),
	} {
		b.Run(name, func(b *testing.B) {
			p := policy.Policy{}
			engine, err := ruleSets[0].engine(p)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := inspect(engine, p, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
