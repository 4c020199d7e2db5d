//! Frames as bytes, right and wrong ones.

#[derive(Clone, Debug)]
pub struct ClientFrame {
    pub is_final: bool,
    pub reserved: u8,
    pub opcode: u8,
    pub is_masked: bool,
    pub length: LengthForm,
    pub payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub enum LengthForm {
    Shortest,
    TwoBytes,
    EightBytes,
    /// Length that differs from the payload's.
    Claimed(u64),
}

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

pub fn frame(opcode: u8, payload: impl Into<Vec<u8>>) -> ClientFrame {
    let payload = payload.into();
    ClientFrame { is_final: true, reserved: 0, opcode, is_masked: true, length: LengthForm::Shortest, payload }
}

pub fn part(opcode: u8, payload: impl Into<Vec<u8>>) -> ClientFrame {
    ClientFrame { is_final: false, ..frame(opcode, payload) }
}

pub fn close(code: u16, reason: impl AsRef<[u8]>) -> ClientFrame {
    frame(CLOSE, [&code.to_be_bytes(), reason.as_ref()].concat())
}

impl ClientFrame {
    pub fn bytes(&self) -> Vec<u8> {
        const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
        let mut bytes = vec![u8::from(self.is_final) << 7 | self.reserved << 4 | self.opcode];
        let masked = u8::from(self.is_masked) << 7;
        let count = self.payload.len() as u64;
        match self.length {
            LengthForm::Shortest if count < 126 => bytes.push(masked | count as u8),
            LengthForm::Shortest if count < 1 << 16 => {
                self.long(&mut bytes, masked | 126, &(count as u16).to_be_bytes())
            }
            LengthForm::TwoBytes => self.long(&mut bytes, masked | 126, &(count as u16).to_be_bytes()),
            LengthForm::Shortest | LengthForm::EightBytes => self.long(&mut bytes, masked | 127, &count.to_be_bytes()),
            LengthForm::Claimed(claimed) => self.long(&mut bytes, masked | 127, &claimed.to_be_bytes()),
        }
        if self.is_masked {
            bytes.extend(MASK);
            bytes.extend(self.payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        } else {
            bytes.extend(&self.payload);
        }
        bytes
    }

    fn long(&self, bytes: &mut Vec<u8>, marker: u8, length: &[u8]) {
        bytes.push(marker);
        bytes.extend(length);
    }
}
