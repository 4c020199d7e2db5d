//! Keys and secrets: accepted and refused ones.

use crate::delete::files_with;
use crate::support::*;
use serde_json::json;
use store::*;

#[tokio::test]
async fn a_key_opens_until_it_is_revoked() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (key, shown) = store.create_key("ada", "kitchen", &[KeyScope::Talk, KeyScope::Sessions], 100).await.unwrap();
    assert!(shown.starts_with(&format!("rk_{}_", key.id)) && shown.len() == 3 + 12 + 1 + 52, "{shown}");
    let identity = store.identify(&shown, 200).await.unwrap().unwrap();
    assert_eq!((identity.user.as_str(), identity.key.as_deref()), ("ada", Some(key.id.as_str())));
    assert!(identity.may(KeyScope::Talk) && identity.may(KeyScope::Sessions) && !identity.may(KeyScope::Admin));
    store.put_user("ada", "Ada", 1).await.unwrap(); // behind the note of use in the queue
    assert_eq!(store.keys(Some("ada")).await.unwrap()[0].last_used_at_ms, Some(200));
    assert_eq!(store.keys(Some("bob")).await.unwrap(), []);
    store.revoke_key(&key.id, 300).await.unwrap();
    assert_eq!(store.identify(&shown, 301).await.unwrap(), None);
    assert_eq!(store.keys(None).await.unwrap()[0].revoked_at_ms, Some(300));
    assert_eq!(store.revoke_key("nobody", 300).await, Err(Error::NoKey { key: "nobody".into() }));
}

#[tokio::test]
async fn anything_else_stays_out() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (key, shown) = store.create_key("ada", "kitchen", &[KeyScope::Talk], 100).await.unwrap();
    let (_, other) = store.create_key("ada", "kitchen", &[KeyScope::Talk], 100).await.unwrap();
    let mut one_letter = shown.clone();
    let last = one_letter.pop().unwrap();
    one_letter.push(if last == '0' { '1' } else { '0' });
    let swapped = format!("rk_{}_{}", key.id, other.rsplit('_').next().unwrap());
    for wrong in [
        "",
        "_",
        "rk",
        "rk_",
        "rk__",
        "rk_nobody_secret",
        &one_letter,
        &swapped,
        &shown[..shown.len() - 1],
        &format!("{shown}0"),
        &shown.replacen("rk", "ek", 1),
        &shown.to_uppercase(),
        "rk_%_%",
        "rk_' OR 1=1 --_x",
        &format!("rk_{}_", key.id),
        "\0_\0_\0",
    ] {
        assert_eq!(store.identify(wrong, 200).await.unwrap(), None, "{wrong:?}");
    }
}

#[tokio::test]
async fn the_secret_is_nowhere_on_disk() {
    let fixture = Fixture::new().await;
    let (_, shown) = fixture.store.create_key("ada", "kitchen", &[KeyScope::Talk], 100).await.unwrap();
    let [_, id, secret] = shown.split('_').collect::<Vec<_>>()[..] else { panic!("{shown}") };
    fixture.store.close().await.unwrap();
    assert!(!files_with(fixture.folder.path(), id).is_empty(), "the key is there");
    assert_eq!(files_with(fixture.folder.path(), secret), Vec::<String>::new());
}

#[tokio::test]
async fn a_client_secret_lives_shortly_and_dies_with_its_key() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (key, shown) = store.create_key("ada", "kitchen", &[KeyScope::Talk, KeyScope::Admin], 100).await.unwrap();
    let maker = store.identify(&shown, 200).await.unwrap().unwrap();
    let session = json!({"instructions": "Be kind."});
    let secret = store.create_client_secret(&maker, session.clone(), 1_000, 200).await.unwrap();
    assert_eq!(secret.expires_at_ms, 1_200);
    let identity = store.identify(&secret.value, 1_199).await.unwrap().unwrap();
    let expected = Identity {
        user: "ada".into(),
        key: Some(key.id.clone()),
        key_name: Some("kitchen".into()),
        scopes: vec![KeyScope::Talk],
        session: Some(session),
    };
    assert_eq!(identity, expected);
    assert_eq!(store.identify(&secret.value, 1_200).await.unwrap(), None);
    let second = store.create_client_secret(&maker, json!({}), 1_000, 200).await.unwrap();
    store.revoke_key(&key.id, 300).await.unwrap();
    assert_eq!(store.identify(&second.value, 301).await.unwrap(), None);
    store.delete_unused_since(0, 5_000).await.unwrap();
}

#[tokio::test]
async fn a_key_that_the_operator_chose_opens_until_the_next_start_has_another() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let scopes = [KeyScope::Talk, KeyScope::Sessions];
    let opens = async |key: &str| store.identify(key, 200).await.unwrap().map(|identity| identity.user);
    assert_eq!(opens("sk-mine").await, None);
    store.put_given_key("ada", Some("sk-mine"), &scopes, 100).await.unwrap();
    assert_eq!(opens("sk-mine").await.as_deref(), Some("ada"));
    for wrong in ["sk-min", "sk-minE", "given", "rk_given_", "ek_given_sk-mine", ""] {
        assert_eq!(opens(wrong).await, None, "{wrong}");
    }
    let identity = store.identify("sk-mine", 200).await.unwrap().unwrap();
    assert!(identity.may(KeyScope::Talk) && !identity.may(KeyScope::Admin));
    store.create_client_secret(&identity, json!({}), 1_000, 200).await.unwrap();
    store.put_given_key("ada", Some("sk_other_one"), &scopes, 300).await.unwrap();
    assert_eq!((opens("sk-mine").await, opens("sk_other_one").await.as_deref()), (None, Some("ada")));
    store.put_given_key("ada", None, &scopes, 400).await.unwrap();
    assert_eq!((opens("sk_other_one").await, store.keys(None).await.unwrap().len()), (None, 1));
    store.put_given_key("ada", Some("sk-mine"), &scopes, 500).await.unwrap();
    assert_eq!(opens("sk-mine").await.as_deref(), Some("ada"));
}
