package snapshots

// SlotState is what a server slot is doing.
type SlotState string

// The states of a slot. HAProxy calls them ready, drain and maint.
const (
	SlotReady SlotState = "ready"
	SlotDrain SlotState = "drain"
	SlotSpare SlotState = "maint"
)
