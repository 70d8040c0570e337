package bind

import (
	"fmt"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// SlotState is what a server slot is doing.
type SlotState string

// The states of a slot. HAProxy calls them ready, drain and maint. A slot that
// is not ready when HAProxy starts is disabled in the configuration, which HAProxy
// remembers in its server state: such a slot, set to drain, has the admin state
// 12 there, and the Dataplane API (3.2 and 3.4, whose client-native reads the
// number as hexadecimal) then reports maint for a slot that drains.
const (
	SlotReady SlotState = "ready"
	SlotDrain SlotState = "drain"
	SlotSpare SlotState = "maint"
)

// SpareAddress and SparePort are where a spare slot points: an address that
// RFC 5737 keeps for documentation, so that nothing is ever there.
const (
	SpareAddress = "192.0.2.1"
	SparePort    = 1
)

// Slot is one server of a directive. A slot keeps its place, and so its server
// name ([Directive.ServerName]), for as long as its endpoint lives.
type Slot struct {
	Address string    `json:"address"`
	Port    int       `json:"port"`
	State   SlotState `json:"state"`
	// Until is set while the slot of an endpoint that is gone is drained: then
	// the slot is free. An endpoint that is there and draining has none.
	Until time.Time `json:"until,omitzero"`
}

// spareSlot is a slot without an endpoint.
var spareSlot = Slot{Address: SpareAddress, Port: SparePort, State: SlotSpare}

func (s Slot) holds(e snapshots.Endpoint) bool { return s.Address == e.Address && s.Port == e.Port }

// SlotKey names the slots of one directive. As text it is
// "backend namespace/service:port".
type SlotKey struct {
	Backend string
	Service snapshots.ServicePort
}

// String returns "backend namespace/service:port".
func (k SlotKey) String() string { return k.Backend + " " + k.Service.String() }

// MarshalText implements [encoding.TextMarshaler].
func (k SlotKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what [SlotKey.MarshalText] wrote.
func (k *SlotKey) UnmarshalText(text []byte) error {
	backend, service, ok := strings.Cut(string(text), " ")
	parsed, err := snapshots.ParseServicePort(service)
	if !ok || backend == "" || err != nil {
		return fmt.Errorf("%q is not backend namespace/service:port", text)
	}
	*k = SlotKey{backend, parsed}
	return nil
}

// Slots is the slot table of a fleet: every instance gets the same servers in
// the same slots. It is a value: nothing in it is changed once it is made, and
// two tables may share groups. Its JSON form is stable.
type Slots map[SlotKey][]Slot

// NextDrain returns when the next drained slot falls free, so that a caller can
// set a timer and call [AssignSlots] then; false if none is to.
func (s Slots) NextDrain() (time.Time, bool) {
	var next time.Time
	for _, group := range s {
		for _, slot := range group {
			if !slot.Until.IsZero() && (next.IsZero() || slot.Until.Before(next)) {
				next = slot.Until
			}
		}
	}
	return next, !next.IsZero()
}

// Placeholder returns the slots of a snapshot without any endpoint: spare ones
// only, so that validation sees every option of every server line.
func Placeholder(s snapshots.Snapshot) (Slots, error) {
	directives, err := Directives(s.Config())
	if err != nil {
		return nil, err
	}
	slots, _ := AssignSlots(nil, directives, nil, time.Time{}, 0)
	return slots, nil
}
