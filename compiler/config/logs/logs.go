// Package logs has the section log of the configuration: how and where HAProxy logs requests.
package logs

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Log says how and where HAProxy logs requests.
type Log struct {
	// Target is where lines go: stdout, none, or the address of a syslog server, over UDP.
	// An address is an IP address or an environment variable such as "${HOST_IP}", which
	// HAProxy expands when it starts. A port may follow, as in 10.0.0.5:1514 and
	// [fd00::5]:1514; otherwise it is 514. A name is not accepted, since HAProxy would not
	// start while it cannot be resolved.
	Target string `json:"target"`
	// Format is how requests are written. http is HAProxy's own line, json an object with
	// times in milliseconds, and any text with % in it is a log-format of HAProxy.
	// Connections that are routed without a look at requests are written as http or json
	// too. What HAProxy logs about itself and about servers stays text.
	Format string `json:"format"`
	// Facility is the facility of syslog, such as daemon or local0.
	Facility string `json:"facility"`
	// Level is the least severe level that is logged. Requests are info; servers that go up
	// and down are notice and alert.
	Level Level `json:"level"`
	// Syslog is the format of messages to a syslog server.
	Syslog SyslogFormat `json:"syslog"`
	// MaxLength is the length in bytes after which lines are cut. 0 stands for HAProxy's own
	// 1024, or for 8192 with the format json, since a cut line of JSON cannot be read.
	MaxLength int `json:"maxLength"`
}

// Level is a level of syslog.
type Level string

// The levels, the most severe first.
const (
	Emerg   Level = "emerg"
	Alert   Level = "alert"
	Crit    Level = "crit"
	Err     Level = "err"
	Warning Level = "warning"
	Notice  Level = "notice"
	Info    Level = "info"
	Debug   Level = "debug"
)

// SyslogFormat is a form of syslog's messages.
type SyslogFormat string

// The forms.
const (
	RFC3164 SyslogFormat = "rfc3164"
	RFC5424 SyslogFormat = "rfc5424"
)

// The targets and formats with a name.
const (
	ToStdout = "stdout"
	Nowhere  = "none"
	HTTP     = "http"
	JSON     = "json"
)

// HAProxy's own maximum length of a line, and ours for JSON.
const (
	logLength     = 1024
	logJSONLength = 8192
)

const logPort = 514

// jsonFormat is the log-format of the format json. Everything that a client can choose goes
// through a converter and is bounded: HAProxy keeps the first 1024 bytes of a request line.
// The rest is numbers, our own names and addresses.
const jsonFormat = `{"time":%Ts.%ms,"client":"%ci","client_port":%cp,"frontend":"%f","backend":"%b","server":"%s",` +
	`"host":"%[var(txn.host),bytes(0,255),json(utf8s)]","method":"%[capture.req.method,json(utf8s)]","uri":"%[capture.req.uri,json(utf8s)]",` +
	`"version":"%[capture.req.ver,json(utf8s)]","status":%ST,"bytes_sent":%B,"bytes_received":%U,"termination":"%ts",` +
	`"retries":%rc,"time_request":%TR,"time_queue":%Tw,"time_connect":%Tc,"time_response":%Tr,"time_active":%Ta,` +
	`"tls_version":"%sslv","tls_cipher":"%sslc"}`

// jsonConnectionFormat is the same for connections that are routed without a look at
// requests. jsonErrorFormat is for those that end before they can be routed: in the TLS
// handshake, or with input that is not a request.
const (
	jsonConnectionFormat = `{"time":%Ts.%ms,"client":"%ci","client_port":%cp,"frontend":"%f","backend":"%b","server":"%s",` +
		`"host":"%[var(sess.sni),bytes(0,255),json(utf8s)]","bytes_sent":%B,"bytes_received":%U,"termination":"%ts",` +
		`"retries":%rc,"time_queue":%Tw,"time_connect":%Tc,"time_total":%Tt,"tls_version":"%sslv","tls_cipher":"%sslc"}`
	jsonErrorFormat = `{"time":%Ts.%ms,"client":"%ci","client_port":%cp,"frontend":"%f","status":%ST,"termination":"%ts",` +
		`"error":"%[fc_err_str,json(utf8s)]","tls_error":"%[ssl_fc_err_str,json(utf8s)]"}`
)

// ConnectionFormat returns the log-format of connections that are routed as
// wholes, or "" for HAProxy's own lines.
func (l Log) ConnectionFormat() string {
	if l.Format == JSON {
		return jsonConnectionFormat
	}
	return ""
}

// ErrorFormat returns the log-format of connections that fail before there is a
// request, or "" for HAProxy's own lines.
func (l Log) ErrorFormat() string {
	if l.Format == JSON {
		return jsonErrorFormat
	}
	return ""
}

// None reports whether nothing is logged.
func (l Log) None() bool { return l.Target == Nowhere }

// Stdout reports whether lines go to the standard output.
func (l Log) Stdout() bool { return l.Target == ToStdout }

// Address returns the address of the syslog server, without its port.
func (l Log) Address() string {
	if host, _, err := net.SplitHostPort(l.Target); err == nil {
		return host
	}
	return strings.Trim(l.Target, "[]")
}

// Port returns the port of the syslog server.
func (l Log) Port() int {
	if _, port, err := net.SplitHostPort(l.Target); err == nil {
		n, _ := strconv.Atoi(port)
		return n
	}
	return logPort
}

// LineFormat returns the log-format, or "" for HAProxy's own lines.
func (l Log) LineFormat() string {
	switch l.Format {
	case HTTP:
		return ""
	case JSON:
		return jsonFormat
	}
	return l.Format
}

// Length returns where lines are cut, or 0 for HAProxy's own limit.
func (l Log) Length() int {
	switch {
	case l.MaxLength == logLength:
		return 0
	case l.MaxLength == 0 && l.Format == JSON:
		return logJSONLength
	}
	return l.MaxLength
}

var (
	facilities = strings.Fields("kern user mail daemon auth syslog lpr news uucp cron auth2 ftp ntp audit alert cron2 " +
		"local0 local1 local2 local3 local4 local5 local6 local7")
	logLevels = []Level{Emerg, Alert, Crit, Err, Warning, Notice, Info, Debug}
)

// Check finds what is wrong with the fields.
func (l Log) Check(f field.Errors) {
	f.At("target").Add(l.checkTarget(), `use stdout, none, or an IP address or "${VARIABLE}", perhaps with a port`)
	f.At("format").Add(checkLogFormat(l.Format), "use http, json, or a log-format of HAProxy such as '%ci %ST %HM'")
	if !slices.Contains(facilities, l.Facility) {
		f.At("facility").Add(fmt.Sprintf("%q is not a facility of syslog", l.Facility), "use one of "+strings.Join(facilities, ", "))
	}
	if !slices.Contains(logLevels, l.Level) {
		f.At("level").Add(fmt.Sprintf("%q is not a level of syslog", string(l.Level)), "use emerg, alert, crit, err, warning, notice, info or debug")
	}
	if l.Syslog != RFC3164 && l.Syslog != RFC5424 {
		f.At("syslog").Add(fmt.Sprintf("%q is not a form of syslog's messages", string(l.Syslog)), "use rfc3164 or rfc5424")
	}
	if l.MaxLength != 0 && (l.MaxLength < 80 || l.MaxLength > 65535) {
		f.At("maxLength").Add(fmt.Sprintf("%d is not a length of lines", l.MaxLength), "use 80 to 65535, or 0 for what suits the format")
	}
}

func (l Log) checkTarget() string {
	if l.None() || l.Stdout() {
		return ""
	}
	if p := l.Port(); p < 1 || p > 65535 {
		return fmt.Sprintf("%q has no such port", l.Target)
	}
	a, err := netip.ParseAddr(l.Address())
	if field.IsVariable(l.Address()) || err == nil && a.Zone() == "" && !a.IsUnspecified() {
		return ""
	}
	return fmt.Sprintf("%q is not an address", l.Target)
}

// checkLogFormat checks the name of a format. HAProxy checks a log-format.
func checkLogFormat(s string) string {
	switch {
	case s == HTTP || s == JSON:
		return ""
	case strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) >= 0:
		return "holds a character that cannot be printed"
	case !strings.Contains(s, "%"):
		return fmt.Sprintf("%q is neither http nor json, nor a format with %%", s)
	}
	return ""
}
